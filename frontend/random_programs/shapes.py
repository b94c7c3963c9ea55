"""Samplers of operations that rearrange elements."""

from shardir.frontend.random_programs.scope import INTEGERS, SIZES, Scope, sampler
from shardir.ir.module import Value
from shardir.ir.types import TensorType


@sampler("broadcast")
def _(s: Scope, name: str) -> None:
    x = s.tensor(high=2)
    shape = list(s.shape(x.type.rank, 4))
    dims = sorted(s.permutation(range(len(shape)))[: x.type.rank])
    for d, size in zip(dims, x.type.shape, strict=True):
        shape[d] = shape[d] if size == 1 else size
    s.emit(name, x, dims=tuple(dims), result=x.type.with_shape(shape))


@sampler("reshape")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    shape, left = [], x.type.size
    while left > 1:
        shape.append(s.choose(*[n for n in range(2, left + 1) if left % n == 0]))
        left //= shape[-1]
    if s.flag():
        shape.insert(s.integer(0, len(shape)), 1)
    s.emit(name, x, result=x.type.with_shape(shape))


@sampler("transpose")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    s.emit(name, x, perm=tuple(s.permutation(range(x.type.rank))))


@sampler("reverse")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    s.emit(name, x, dims=s.dims(x))


@sampler("roll")
def _(s: Scope, name: str) -> None:
    x = s.tensor(low=1)
    dim = s.dim(x)
    s.emit(name, x, dim=dim, shift=s.integer(0, x.type.shape[dim] - 1))


@sampler("slice")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    starts = tuple(s.integer(0, n - 1) for n in x.type.shape)
    strides = s.each(x, 1, 3)
    most = [
        -(-(n - start) // stride)
        for n, start, stride in zip(x.type.shape, starts, strides, strict=True)
    ]
    to = x.type.with_shape([s.integer(1, n) for n in most])
    s.emit(name, x, starts=starts, strides=strides, result=to)


@sampler("pad")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    low, high = s.each(x, 0, 2), s.each(x, 0, 2)
    if s.flag():  # Remove elements instead, and keep at least one.
        low = tuple(-min(n - 1, k) for n, k in zip(x.type.shape, low, strict=True))
    value = s.value(x.type.with_shape(()))
    s.emit(name, x, value, low=low, high=high, interior=s.each(x, 0, 2))


@sampler("concatenate")
def _(s: Scope, name: str) -> None:
    x = s.tensor(low=1)
    dim = s.dim(x)
    others = []
    for _ in range(s.integer(0, 2)):
        shape = list(x.type.shape)
        shape[dim] = s.choose(*SIZES)
        others.append(s.value(x.type.with_shape(shape)))
    s.emit(name, x, *others, dim=dim)


def _starts(s: Scope, x: Value) -> list[Value]:
    kind = TensorType((), s.choose(*INTEGERS))
    return [s.value(kind) for _ in x.type.shape]


@sampler("dynamic_slice")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    to = x.type.with_shape([s.integer(1, n) for n in x.type.shape])
    s.emit(name, x, *_starts(s, x), result=to)


@sampler("dynamic_update_slice")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    update = s.value(x.type.with_shape([s.integer(1, n) for n in x.type.shape]))
    s.emit(name, x, update, *_starts(s, x))


@sampler("optimization_barrier")
def _(s: Scope, name: str) -> None:
    s.emit(name, *(s.tensor() for _ in range(s.integer(1, 3))))
