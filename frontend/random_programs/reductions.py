"""Samplers of reductions, cumulative operations, sorting and contractions."""

from shardir.frontend.random_programs.scope import (
    FLOATS,
    NUMBERS,
    ORDERED,
    REAL,
    SIZES,
    Scope,
    sampler,
)
from shardir.ir.types import TensorType

_REDUCED = {"sum": NUMBERS, "prod": NUMBERS, "max": ORDERED, "min": ORDERED,
            "any": ("bool",), "all": ("bool",)}  # fmt: skip


@sampler(*_REDUCED)
def _(s: Scope, name: str) -> None:
    x = s.tensor(_REDUCED[name])
    s.emit(name, x, dims=s.dims(x))


@sampler("argmax", "argmin")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL, low=1)
    dim = s.dim(x)
    shape = x.type.shape[:dim] + x.type.shape[dim + 1 :]
    s.emit(name, x, dim=dim, result=TensorType(shape, s.choose("i32", "i64", "u8")))


_RUNNING = {"cumsum": NUMBERS, "cumprod": NUMBERS, "cummax": REAL, "cummin": REAL,
            "cumlogsumexp": FLOATS}  # fmt: skip


@sampler(*_RUNNING)
def _(s: Scope, name: str) -> None:
    x = s.tensor(_RUNNING[name], low=1)
    s.emit(name, x, dim=s.dim(x), reverse=s.flag())


@sampler("sort")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL, low=1)
    others = [s.value(x.type.with_dtype(s.choose(*REAL))) for _ in range(s.integer(0, 2))]
    given = {"keys": s.integer(1, 1 + len(others)), "stable": s.flag()} if s.flag() else {}
    s.emit(name, x, *others, dim=s.dim(x), **given)


@sampler("top_k")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL, low=1)
    values = x.type.with_shape((*x.type.shape[:-1], s.integer(1, x.type.shape[-1])))
    s.emit(name, x, result=(values, values.with_dtype("i32")))


@sampler("dot")
def _(s: Scope, name: str) -> None:
    x = s.tensor(NUMBERS)
    left = "abc"[: x.type.rank]
    kept = [d for d in s.dims(x)]
    right = [left[d] for d in kept]
    shape = [x.type.shape[d] for d in kept]
    for letter in "uv"[: s.integer(0, 2)]:
        at = s.integer(0, len(right))
        right.insert(at, letter)
        shape.insert(at, s.choose(*SIZES))
    letters = s.permutation(sorted({*left, *right}))
    out = [c for c in letters if c in "uv" or left.find(c) not in kept or s.flag()]
    y = s.value(x.type.with_shape(shape))
    s.emit(name, x, y, dims=f"{left},{''.join(right)}->{''.join(out)}")
