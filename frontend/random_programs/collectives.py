"""Samplers of operations of per-device programs."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from shardir.frontend.random_programs.scope import (
    DTYPES,
    INTEGERS,
    NUMBERS,
    ORDERED,
    SAMPLERS,
    Scope,
    sampler,
)
from shardir.ir.module import Op, Value
from shardir.ir.operation import OpSpec, Symbol
from shardir.ir.sharding import Axes
from shardir.ops.communication.async_collectives import START_OPS, done

_REDUCTION_DTYPES = {"add": NUMBERS, "mul": NUMBERS, "max": ORDERED, "min": ORDERED,
             "and": ("bool", *INTEGERS), "or": ("bool", *INTEGERS)}  # fmt: skip


def _count_devices(axes: Axes) -> int:
    return prod(axis.size for axis in axes)


def _divisible_value(
    s: Scope, dtypes: Sequence[str], pieces: int, rank: int = 1
) -> tuple[Value, int]:
    """Return a value of at least this rank, and a dimension that `pieces` divides."""
    type = s.type(dtypes, rank)
    dim = s.integer(0, type.rank - 1)
    shape = [n * pieces if d == dim else n for d, n in enumerate(type.shape)]
    return s.value(type.with_shape(shape)), dim


@sampler("vary")
def _(s: Scope, name: str) -> None:
    s.emit(name, s.tensor(), axes=s.axes())


@sampler("all-reduce")
def _(s: Scope, name: str) -> None:
    op = s.choose(*_REDUCTION_DTYPES)
    s.emit(name, s.tensor(_REDUCTION_DTYPES[op]), axes=s.axes(), op=Symbol(op))


@sampler("all-gather")
def _(s: Scope, name: str) -> None:
    x = s.tensor(low=1, high=2)
    s.emit(name, x, dim=s.dim(x), axes=s.axes())


@sampler("all-slice")
def _(s: Scope, name: str) -> None:
    axes = s.axes()
    x, dim = _divisible_value(s, DTYPES, _count_devices(axes))
    s.emit(name, x, dim=dim, axes=axes)


@sampler("reduce-scatter")
def _(s: Scope, name: str) -> None:
    op, axes = s.choose(*_REDUCTION_DTYPES), s.axes()
    x, dim = _divisible_value(s, _REDUCTION_DTYPES[op], _count_devices(axes))
    s.emit(name, x, dim=dim, axes=axes, op=Symbol(op))


@sampler("all-to-all")
def _(s: Scope, name: str) -> None:
    axes = s.axes()
    x, split = _divisible_value(s, DTYPES, _count_devices(axes), 2)
    concat = s.choose(*(d for d in range(x.type.rank) if d != split))
    s.emit(name, x, split=split, concat=concat, axes=axes)


@sampler("collective-permute")
def _(s: Scope, name: str) -> None:
    axes = s.axes()
    if s.flag():
        s.emit(name, s.tensor(), source=axes, target=tuple(s.permutation(axes)))
        return
    places = range(_count_devices(axes))
    pairs = zip(s.permutation(places), s.permutation(places), strict=True)
    s.emit(name, s.tensor(), axes=axes, pairs=tuple(pairs)[: s.integer(0, len(places))])


@sampler("axis-index")
def _(s: Scope, name: str) -> None:
    s.emit(name, axes=s.axes())


@sampler("done")
def _(s: Scope, name: str) -> None:
    _append_asynchronous(s, s.choose(*START_OPS))


@sampler(*(spec.name for spec in START_OPS.values()))
def _(s: Scope, name: str) -> None:
    (whole,) = (spec for spec, start in START_OPS.items() if start.name == name)
    _append_asynchronous(s, whole)


def _append_asynchronous(s: Scope, whole: OpSpec) -> None:
    """Append the start and the end of an asynchronous collective."""
    SAMPLERS[whole.name](s)
    op = s.b.ops.pop()
    (result,) = op.results
    started = Value(result.type, s.b.names.fresh(result.name))
    s.b.append(replace(op, spec=START_OPS[whole], results=(started,)))
    s.b.append(Op(done, (started,), (result,)))
