"""Analysis of padding inside a manual computation.

`shard_map` with `uneven="pad"` pads a dimension that its axes do not divide, so that the last
shards end in zeros. A result has the size of that dimension again only if position i of each shard
still corresponds to position i of the argument's shard. An operation preserves the positions of a
dimension if a pass-through factor of its rule covers the dimension alone; a running sum preserves
them too. An operation that moves positions (a sort, a reversal, a reshape that splits the
dimension) or that exchanges shards along the axes (`ppermute`, `psum`) does not, and neither does
one whose operands are padded at different sizes.

%y = mul(%x, %s)        %x: f32[2], padded from 6 over `a`  ->  %y padded from 6 over `a`
    %z = sort(%x)           ->  the padding of %z is unknown
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardir import ops
from shardir.ir.module import Block, Op, Value
from shardir.ir.sharding import Axes
from shardir.op_rules.factors import FactorKind

POSITION_PRESERVING_OPERATIONS = frozenset(
    {ops.cumsum, ops.cumprod, ops.cummax, ops.cummin, ops.cumlogsumexp}
)
"""Operations that preserve positions along their permutation factors."""


@dataclass(frozen=True, slots=True)
class PaddedDim:
    """A dimension that `axes` shard, whose shards together have `size` positions, then padding."""

    axes: Axes
    size: int


PaddedDims = tuple[PaddedDim | None, ...]
"""Padding of each dimension of a value; `None` if unknown."""


def padded_dims(block: Block, initial: Mapping[Value, PaddedDims]) -> dict[Value, PaddedDims]:
    """Return the padding of each value of a block and of nested blocks.

    `initial` holds the padding of parameters and of values from outside.
    """
    padded = dict(initial)
    _analyze_block(block, padded)
    return padded


def _dims(value: Value, padded: Mapping[Value, PaddedDims]) -> PaddedDims:
    return padded.get(value) or (None,) * value.type.rank


def _analyze_block(block: Block, padded: dict[Value, PaddedDims]) -> None:
    for op in block.ops:
        if op.spec is ops.manual_computation:
            _analyze_manual(op, padded)
        elif op.edges():
            _analyze_loop(op, padded)
        elif op.spec in (ops.optimization_barrier, ops.vary):
            for result, value in zip(op.results, op.operands, strict=True):
                padded[result] = _dims(value, padded)
        else:
            _analyze_operation(op, padded)
            if op.spec is ops.reshape:
                _analyze_unit_dims(op, padded)


def _analyze_operation(op: Op, padded: dict[Value, PaddedDims]) -> None:
    rule = op.factors()
    if rule is None:
        return
    crossed = op.attrs.get("axes", ()) if op.spec.spmd else ()
    padding_of_factor: dict[int, set[PaddedDim | None]] = {}
    for value, mapping in zip(op.operands, rule.operands, strict=True):
        dims = _dims(value, padded)
        for size, factors, dim in zip(value.type.shape, mapping, dims, strict=True):
            if dim is None:
                continue
            moved = any(axis.overlaps(other) for axis in dim.axes for other in crossed)
            for number in factors:
                is_full_factor = rule.factors[number].size == size
                padding_of_factor.setdefault(number, set()).add(
                    dim if is_full_factor and not moved else None
                )

    def padding(size: int, factors: Sequence[int]) -> PaddedDim | None:
        factor = rule.factors[factors[0]] if len(factors) == 1 else None
        if factor is None or factor.size != size:
            return None
        stays = factor.kind is FactorKind.PASS or op.spec in POSITION_PRESERVING_OPERATIONS
        seen = padding_of_factor.get(factors[0], set())
        return next(iter(seen)) if stays and len(seen) == 1 else None

    for result, mapping in zip(op.results, rule.results, strict=True):
        padded[result] = tuple(map(padding, result.type.shape, mapping))


def _analyze_unit_dims(op: Op, padded: dict[Value, PaddedDims]) -> None:
    """Transfer the padding of dimensions of size 1 through a reshape.

    The factor rule does not map such dimensions, but with one position each any of them corresponds
    to any other.
    """
    (operand,), (result,) = op.operands, op.results
    dims = zip(operand.type.shape, _dims(operand, padded), strict=True)
    units = {dim for size, dim in dims if size == 1 and dim is not None}
    if len(units) != 1:
        return
    (unit,) = units
    result_dims = zip(result.type.shape, _dims(result, padded), strict=True)
    padded[result] = tuple(dim or (unit if size == 1 else None) for size, dim in result_dims)


def _meet(values: Sequence[PaddedDims]) -> PaddedDims:
    """Return the padding that all of the values have in common."""
    first, *others = values
    return tuple(
        dim if all(other[i] == dim for other in others) else None for i, dim in enumerate(first)
    )


def _analyze_loop(op: Op, padded: dict[Value, PaddedDims]) -> None:
    """Analyze loops and branches: a carried value is padded if it is before the loop and after each
    step.

    Sources inside of the blocks count after the first sweep; each further sweep can only remove
    padding, so the sweeps end.
    """
    carried: dict[Value, PaddedDims] = {}
    _sweep(op, carried, padded, is_first=True)
    _sweep(op, carried, padded)
    while not _is_settled(op, carried, padded):
        _sweep(op, carried, padded)


def _sweep(
    op: Op,
    carried: dict[Value, PaddedDims],
    padded: dict[Value, PaddedDims],
    *,
    is_first: bool = False,
) -> None:
    """Transfer padding over the edges of `op`, then analyze its blocks."""
    for edge in op.edges():
        sources = [
            _padding_of_slice(source, edge.stacked, padded)
            for source in edge.sources
            if source in op.operands or not is_first
        ]
        if edge.targets[0] in carried:
            sources.append(carried[edge.targets[0]])
        if not sources:
            continue
        dims = carried[edge.targets[0]] = _meet(sources)
        for target in edge.targets:
            padded[target] = (None, *dims) if target in edge.stacked else dims
    for block in op.blocks:
        _analyze_block(block, padded)


def _padding_of_slice(
    value: Value, stacked: Sequence[Value], padded: Mapping[Value, PaddedDims]
) -> PaddedDims:
    dims = _dims(value, padded)
    return dims[1:] if value in stacked else dims


def _is_settled(
    op: Op, carried: Mapping[Value, PaddedDims], padded: Mapping[Value, PaddedDims]
) -> bool:
    """Return whether another sweep over the edges of `op` would change nothing."""
    return all(
        _meet(
            [
                carried[edge.targets[0]],
                *(_padding_of_slice(s, edge.stacked, padded) for s in edge.sources),
            ]
        )
        == carried[edge.targets[0]]
        for edge in op.edges()
    )


def _analyze_manual(op: Op, padded: dict[Value, PaddedDims]) -> None:
    """Analyze a manual computation: padding of dimensions that it does not shard is that of the
    operands."""
    (body,) = op.blocks
    for param, value, dim_axes in zip(body.params, op.operands, op.attrs["in_axes"], strict=True):
        dims = zip(_dims(value, padded), dim_axes, strict=True)
        padded[param] = tuple(None if manual_axes else dim for dim, manual_axes in dims)
    _analyze_block(body, padded)
    for result, value, dim_axes in zip(op.results, body.returns, op.attrs["out_axes"], strict=True):
        dims = zip(_dims(value, padded), dim_axes, strict=True)
        padded[result] = tuple(None if manual_axes else dim for dim, manual_axes in dims)
