"""Samplers of operations that create tensors: constants, iota, random numbers."""

from typing import Any

from shardir.frontend.random_programs.scope import (
    ARITHMETIC,
    INDEX,
    NUMBERS,
    UNSIGNED,
    Scope,
    sampler,
)
from shardir.ir.operation import Dense, Symbol
from shardir.ir.types import TensorType


@sampler("iota")
def _(s: Scope, name: str) -> None:
    to = s.type(NUMBERS, 1)
    s.emit(name, dim=s.integer(0, to.rank - 1), result=to)


@sampler("constant")
def _(s: Scope, name: str) -> None:
    to = s.type(ARITHMETIC)
    value = s.choices.number(to.dtype) if s.flag() else Dense(s.choices.elements(to))
    s.emit(name, value=value, result=to)


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
