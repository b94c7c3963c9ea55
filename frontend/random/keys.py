"""Keys: made from seeds, split into more, and looked into."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.frontend.config import config
from shardir.frontend.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import shape_of
from shardir.frontend.operands import as_tracer, constant, convert, is_number
from shardir.frontend.trace import current, emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol
from shardir.types import INTEGERS, TensorType

Shape = int | Sequence[int]
IMPLEMENTATION = "threefry2x32"


def scheme() -> Symbol:
    """How counters are made, by the setting `threefry_partitionable`."""
    return Symbol("partitionable" if config.threefry_partitionable else "original")


def keys_of(key: Any) -> tuple[Tracer, bool]:
    """Typed keys, and whether they were given as two 32-bit words each (`PRNGKey`)."""
    tracer = as_tracer(key)
    type = tracer.value.type
    if type.dtype == "key":
        return tracer, False
    if type.dtype == "u32" and type.shape and type.shape[-1] == 2:
        made = emit("bitcast", tracer, result=TensorType(type.shape[:-1], "key"))
        return made, True
    raise RandomError(point(f"a random key is wanted, got {type}; make one with random.key(seed)"))


def single_key(key: Any) -> Tracer:
    """One typed key; raises `RandomError` for an array of them."""
    found, _ = keys_of(key)
    if found.ndim:
        raise RandomError(
            point(
                f"one random key is wanted, got an array of keys of shape {found.shape}; "
                "take one of them, or draw from each with lax.map"
            )
        )
    return found


def _words(key: Tracer) -> Tracer:
    words: Tracer = emit("bitcast", key, result=TensorType((*key.shape, 2), "u32"))
    return words


@public()
def wrap_key_data(key_bits_array: Any) -> Any:
    """Keys from their words: u32[..., 2] to key[...]."""
    return keys_of(key_bits_array)[0]


@public()
def key_data(keys: Any) -> Any:
    """The words of keys: key[...] to u32[..., 2]."""
    return _words(keys_of(keys)[0])


def key_impl(keys: Any) -> str:
    """The algorithm that keys are for; there is one."""
    return IMPLEMENTATION


@public()
def clone(key: Any) -> Any:
    """The same key, which draws the same numbers."""
    return as_tracer(key)


@public(name="PRNGKey")
def _seeded(seed: Any) -> Any:
    seed = as_tracer(seed)
    dtype = seed.value.type.dtype
    if dtype not in INTEGERS or seed.ndim:
        raise RandomError(point(f"a seed is an integer, got {seed.value.type}"))
    low = convert(seed, "u32")
    if dtype in ("i64", "u64"):
        wide = convert(seed, "u64")
        half = constant(np.uint64(32))
        high = convert(emit("shift_right_logical", wide, half), "u32")
    else:
        high = constant(np.uint32(0))
    halves = [emit("reshape", half, result=TensorType((1,), "u32")) for half in (high, low)]
    return emit("concatenate", *halves, dim=0)


def PRNGKey(seed: Any, *, impl: str | None = None) -> Any:
    """A key as two 32-bit words, u32[2]; `key` makes a typed one."""
    _check(impl)
    if is_number(seed) and type(seed) is int:
        whole = seed & 0xFFFF_FFFF_FFFF_FFFF
        words = np.array([whole >> 32 if config.enable_x64 else 0, whole & 0xFFFF_FFFF], np.uint32)
        if current() is not None:
            return constant(words)
        from shardir.frontend.array import from_numpy

        return from_numpy(words)
    return _seeded(seed)


def _check(impl: str | None) -> None:
    if impl not in (None, IMPLEMENTATION, "fry"):
        raise RandomError(
            point(f"random keys of {impl!r} are unknown; they are for {IMPLEMENTATION!r}")
        )


def key(seed: Any, *, impl: str | None = None) -> Any:
    """The key of an integer seed; without 64-bit types only the low 32 bits of the seed count."""
    return wrap_key_data(PRNGKey(seed, impl=impl))


@public(static=("num", "scheme"))
def _split(key: Any, num: tuple[int, ...], scheme: str) -> Any:
    found, raw = keys_of(key)
    if found.ndim:
        raise RandomError(
            point(f"split takes one key, got an array of keys of shape {found.shape}")
        )
    made = emit("random_split", found, scheme=Symbol(scheme), result=TensorType(num, "key"))
    return _words(made) if raw else made


def split(key: Any, num: Shape = 2) -> Any:
    """`num` new keys (an integer or a shape) from one."""
    return _split(key, shape_of(num), str(scheme()))


@public()
def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer."""
    found, raw = keys_of(key)
    if found.ndim:
        raise RandomError(
            point(f"fold_in takes one key, got an array of keys of shape {found.shape}")
        )
    number = as_tracer(data)
    if number.ndim or number.value.type.dtype not in INTEGERS:
        raise RandomError(point(f"fold_in takes an integer, got {number.value.type}"))
    made = emit("random_fold_in", found, convert(number, "u32"))
    return _words(made) if raw else made
