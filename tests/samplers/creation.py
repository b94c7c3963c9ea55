"""Samplers of operations that create tensors: constants, iota, random numbers."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from shardir.ir.operation import Dense, Symbol
from shardir.ir.types import COMPLEX, INTEGERS, UNSIGNED, TensorType
from tests.samplers.scope import ARITHMETIC, INDEX, NUMBERS, Scope, sampler


@sampler("iota")
def _(s: Scope, name: str) -> None:
    to = s.type(NUMBERS, 1)
    s.emit(name, dim=s.integer(0, to.rank - 1), result=to)


@sampler("constant")
def _(s: Scope, name: str) -> None:
    to = s.type(ARITHMETIC)
    s.emit(name, value=s.draw(splats(to.dtype) if s.flag() else arrays(to)), result=to)


def splats(dtype: str) -> st.SearchStrategy[Any]:
    """Draw a Python number for every element of a constant."""
    if dtype == "bool":
        return st.booleans()
    if dtype in INTEGERS:
        info = np.iinfo(TensorType((), dtype).numpy)
        return st.integers(int(info.min), int(info.max))
    width = {"f16": 16, "bf16": 16, "f32": 32, "c64": 32}.get(dtype, 64)
    floats = st.floats(width=width)  # type: ignore[arg-type]
    if dtype in COMPLEX:
        return st.builds(complex, floats, floats)
    return floats


def arrays(type: TensorType) -> st.SearchStrategy[Dense]:
    """Draw an array with any bits (of bools: false and true)."""
    content = st.binary(min_size=type.nbytes, max_size=type.nbytes)
    if type.dtype == "bool":
        content = content.map(lambda data: bytes(byte & 1 for byte in data))
    listed = st.lists(splats(type.dtype), min_size=type.size, max_size=type.size)
    numbers = listed.map(lambda numbers: np.array(numbers, object).astype(type.numpy).tobytes())
    return st.one_of(numbers, content).map(
        lambda data: Dense(np.frombuffer(data, type.numpy).reshape(type.shape))
    )


def _scheme(s: Scope) -> dict[str, Any]:
    return {"scheme": Symbol(s.choose("partitionable", "original"))} if s.flag() else {}


@sampler("random_bits", "random_bits_at")
def _(s: Scope, name: str) -> None:
    to = s.type(UNSIGNED)
    _random(s, name, to)


@sampler("random_split", "random_split_at")
def _(s: Scope, name: str) -> None:
    _random(s, name, s.type(("key",)))


def _random(s: Scope, name: str, to: TensorType) -> None:
    starts, whole = [], {}
    lead = s.integer(0, to.rank)
    keys = s.value(TensorType(to.shape[:lead], "key"))
    if name.endswith("_at"):
        starts = [s.value(INDEX) for _ in to.shape[lead:]]
        whole = {"shape": tuple(n * s.integer(1, 2) for n in to.shape[lead:])}
    s.emit(name, keys, *starts, result=to, **whole, **_scheme(s))


@sampler("random_fold_in")
def _(s: Scope, name: str) -> None:
    key = s.tensor(("key",))
    s.emit(name, key, s.value(key.type.with_dtype("u32")))


@sampler("random_hash")
def _(s: Scope, name: str) -> None:
    key = s.tensor(("key",))
    words = key.type.with_dtype("u32")
    s.emit(name, key, s.value(words), s.value(words))
