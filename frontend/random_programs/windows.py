"""Samplers of operations on windows and with indices."""

from dataclasses import dataclass
from typing import Any

from shardir.frontend.random_programs.scope import FLOATS, REAL, Scope, sampler
from shardir.ir.builder import infer_types
from shardir.ir.module import Value
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import TensorType


@sampler("convolution")
def _(s: Scope, name: str) -> None:
    spatial = s.integer(1, 2)
    groups, features, out = s.integer(1, 2), s.integer(1, 2), s.integer(1, 2)
    dtype = s.choose(*FLOATS, "i32")
    sizes = [s.integer(3, 6) for _ in range(spatial)]
    x = s.value(TensorType((s.integer(1, 2), *sizes, groups * features), dtype))
    window = [s.integer(1, 2) for _ in range(spatial)]
    w = s.value(TensorType((*window, features, groups * out), dtype))
    letters = "01"[:spatial]
    s.emit(
        name,
        x,
        w,
        strides=tuple(s.integer(1, 2) for _ in range(spatial)),
        padding=tuple((s.integer(0, 1), s.integer(0, 1)) for _ in range(spatial)),
        lhs_dilation=tuple(s.integer(1, 2) for _ in range(spatial)),
        rhs_dilation=tuple(s.integer(1, 2) for _ in range(spatial)),
        dims=f"b{letters}f,{letters}io->b{letters}f",
        **({"groups": groups} if groups > 1 else {}),
    )


def _window(s: Scope, x: Value) -> dict[str, Any]:
    return {
        "window": tuple(s.integer(1, min(2, n)) for n in x.type.shape),
        "strides": s.each(x, 1, 2),
        "padding": tuple((s.integer(0, 1), s.integer(0, 1)) for _ in x.type.shape),
        "base_dilation": s.each(x, 1, 1),
        "window_dilation": s.each(x, 1, 1),
    }


@sampler("reduce_window")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL, low=1)
    s.emit(name, x, op=Symbol(s.choose("add", "max", "min", "mul")), **_window(s, x))


@sampler("select_and_scatter")
def _(s: Scope, name: str) -> None:
    x = s.tensor(FLOATS, low=1)
    attrs = {"op": Symbol(s.choose("max", "min")), **_window(s, x)}
    (places,) = infer_types(OPS["reduce_window"], [x], None, attrs)
    s.emit(name, x, s.value(places), **attrs)


@dataclass
class _Indexing:
    """The attributes that relate the operand, indices and slices of gather and scatter."""

    indices: TensorType
    slices: TensorType
    window: tuple[int, ...]
    collapsed: tuple[int, ...]
    map: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]


def _indexing(s: Scope, x: Value) -> _Indexing:
    """Choose the batching, collapsed and window dimensions of the operand, and the shape of the
    indices."""
    roles = [s.choose("window", "collapsed", "batching") for _ in x.type.shape]
    batching = tuple(d for d, role in enumerate(roles) if role == "batching")[:1]
    collapsed = tuple(d for d, role in enumerate(roles) if role == "collapsed")
    windowed = [d for d in range(x.type.rank) if d not in (*batching, *collapsed)]
    batch = [*(x.type.shape[d] for d in batching), *s.shape(0, 2)]
    chosen = [*collapsed, *(d for d in windowed if s.flag())]
    map = tuple(s.permutation(chosen))
    extents = [s.integer(1, x.type.shape[d]) if d in chosen else x.type.shape[d] for d in windowed]
    rank = len(batch) + len(extents)
    window = tuple(sorted(s.permutation(range(rank))[: len(extents)]))
    sizes, rest = iter(extents), iter(batch)
    shape = [next(sizes) if d in window else next(rest) for d in range(rank)]
    return _Indexing(
        TensorType((*batch, len(map)), s.choose("i32", "i64", "u8")),
        x.type.with_shape(shape),
        window,
        collapsed,
        map,
        batching,
        tuple(range(len(batching))),
    )


def _batching(indexing: _Indexing) -> dict[str, Any]:
    if not indexing.batching:
        return {}
    return {
        "operand_batching_dims": indexing.batching,
        "indices_batching_dims": indexing.indices_batching,
    }


@sampler("gather")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    how = _indexing(s, x)
    s.emit(
        name,
        x,
        s.value(how.indices),
        offset_dims=how.window,
        collapsed_dims=how.collapsed,
        start_index_map=how.map,
        result=how.slices,
        **_batching(how),
    )


@sampler("scatter")
def _(s: Scope, name: str) -> None:
    op = s.choose("add", "set", "mul", "min", "max")
    x = s.tensor(REAL)
    how = _indexing(s, x)
    s.emit(
        name,
        x,
        s.value(how.indices),
        s.value(how.slices),
        update_window_dims=how.window,
        inserted_window_dims=how.collapsed,
        scatter_dims=how.map,
        op=Symbol(op),
        **_batching(how),
    )
