"""Collectives become operations on the dimensions of their sub-axes.

A sum over devices is a sum over a dimension, and gathered, exchanged or sliced values are the same
elements in another shape. A value that is replicated along the axes of a collective is broadcast
only where the result needs it: the maximum of equal values is the value itself.
"""

from collections.abc import Sequence
from math import prod

from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axes
from shardir.ir.types import FLOATS, INTEGERS
from shardir.ops.type_checks import Ints
from shardir.passes.whole_program.dim_arrangement import (
    arrange_dims,
    number_parts,
    reshape_if_needed,
    slice_rows,
)
from shardir.passes.whole_program.merger import BatchedValue, DeviceMerger, MergeRule
from shardir.passes.whole_program.mesh_sub_axes import axis_sizes
from shardir.text.printer import format_axis

DIM_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
BOOL_REDUCTIONS = {
    "add": "any",
    "max": "any",
    "or": "any",
    "mul": "all",
    "min": "all",
    "and": "all",
}


def reduce_sub_axes(
    merger: DeviceMerger, spread: BatchedValue, atoms: Axes, op: str
) -> BatchedValue:
    """Return the values of all positions along `atoms`, reduced."""
    b = merger.b
    value, own = spread
    same = tuple(atom for atom in atoms if atom not in own)
    if same and op in ("add", "mul") and value.type.dtype != "bool":
        count = prod(axis_sizes(same))
        if op == "add" and is_sum_exact_product(count, value.type.dtype):
            value = b.mul(value, b.full(count, value.type))
        else:
            own = merger.atoms.union(own, atoms)
            value = merger.widen(spread, own)
    dims = tuple(i for i, atom in enumerate(own) if atom in atoms)
    left = tuple(atom for atom in own if atom not in atoms)
    if not dims:
        return BatchedValue(value, left)
    if value.type.dtype == "bool":
        return BatchedValue(b.emit(OPS[BOOL_REDUCTIONS[op]], value, dims=dims), left)
    if op in DIM_REDUCTIONS:
        return BatchedValue(b.emit(OPS[DIM_REDUCTIONS[op]], value, dims=dims), left)
    return BatchedValue(_reduce_bitwise(merger, value, dims, op), left)


def is_sum_exact_product(count: int, dtype: str) -> bool:
    """Return whether a sum of equal values equals a product to the bit."""
    if dtype in INTEGERS:
        return count < 1 << 7
    return dtype in FLOATS and (count & (count - 1)) == 0 and count < 1 << 15


def _reduce_bitwise(merger: DeviceMerger, value: Value, dims: Sequence[int], op: str) -> Value:
    """Return the bitwise reduction of integers by repeated halving."""
    b = merger.b
    remaining_dims = [d for d in range(value.type.rank) if d not in dims]
    split = [(size,) for size in value.type.shape]
    order: list[Ints] = [tuple(dims), *((d,) for d in remaining_dims)]
    result = arrange_dims(b, value, split, order)
    shape = result.type.shape[1:]
    while (count := result.type.shape[0]) > 1:
        half = count // 2
        pairs = b.emit(
            OPS[op], slice_rows(b, result, 0, 0, half), slice_rows(b, result, 0, half, half)
        )
        odd = [slice_rows(b, result, 0, 2 * half, 1)] if count % 2 else []
        result = b.concatenate(pairs, *odd, dim=0) if odd else pairs
    return reshape_if_needed(b, result, shape)


def gather_shards(
    merger: DeviceMerger, spread: BatchedValue, dim: int, atoms: Axes
) -> BatchedValue:
    """Return the shards of all positions along `atoms`, concatenated along `dim`."""
    own = merger.atoms.union(spread.atoms, atoms)
    value = merger.widen(spread, own)
    left = tuple(atom for atom in own if atom not in atoms)
    order: list[Ints] = [(own.index(atom),) for atom in left]
    joined = tuple(map(own.index, atoms))
    count = len(own)
    order += [(*joined, d) if d == dim + count else (d,) for d in range(count, value.type.rank)]
    return BatchedValue(
        arrange_dims(merger.b, value, [(n,) for n in value.type.shape], order), left
    )


def distribute_shards(
    merger: DeviceMerger, spread: BatchedValue, dim: int, atoms: Axes
) -> BatchedValue:
    """Return for each position along `atoms` its shard of dimension `dim`.

    If the value differs along some of them already, each position takes the shard of its own value.
    """
    value, own = spread
    if any(atom in own for atom in atoms):
        return _distribute_own_shards(merger, spread, dim, atoms)
    all_atoms = merger.atoms.union(own, atoms)
    split: list[Ints] = [(n,) for n in value.type.shape]
    at = len(own) + dim
    split[at] = (*axis_sizes(atoms), value.type.shape[at] // prod(axis_sizes(atoms)))
    parts = number_parts(split)
    position_of = dict(zip(own, range(len(own)), strict=True)) | dict(
        zip(atoms, parts[at], strict=False)
    )
    rest = [each if d != dim else each[-1:] for d, each in enumerate(parts[len(own) :])]
    order = [*((position_of[atom],) for atom in all_atoms), *rest]
    return BatchedValue(arrange_dims(merger.b, value, split, order), all_atoms)


def _distribute_own_shards(
    merger: DeviceMerger, spread: BatchedValue, dim: int, atoms: Axes
) -> BatchedValue:
    """Return the shards of a value that differs along some of `atoms`: for each position its
    own."""
    value, own = spread
    shared = tuple(atom for atom in atoms if atom in own)
    b, all_atoms = merger.b, merger.atoms.union(own, atoms)
    at = len(own) + dim
    split: list[Ints] = [(n,) for n in value.type.shape]
    split[at] = (*axis_sizes(atoms), value.type.shape[at] // prod(axis_sizes(atoms)))
    parts = number_parts(split)
    inside = dict(zip(atoms, parts[at], strict=False))
    outside = {atom: parts[i][0] for i, atom in enumerate(own)}
    rest = [each if d != dim else each[-1:] for d, each in enumerate(parts[len(own) :])]
    others = [atom for atom in all_atoms if atom not in shared]
    order = [
        *((outside[atom],) for atom in shared),
        *((inside[atom],) for atom in shared),
        *((outside.get(atom, inside.get(atom, -1)),) for atom in others),
        *rest,
    ]  # fmt: skip
    square = arrange_dims(b, value, split, order)
    count = prod(axis_sizes(shared))
    shard_shape = square.type.shape[2 * len(shared) :]
    flat = reshape_if_needed(b, square, (count * count, *shard_shape))
    steps = (count + 1, *(1 for _ in shard_shape))
    to = value.type.with_shape((count, *shard_shape))
    line = b.slice(flat, starts=(0,) * (1 + len(shard_shape)), strides=steps, result=to)
    now = (*shared, *others)
    dim_sizes = [axis_sizes(shared), *((n,) for n in shard_shape)]
    back = [(now.index(atom),) for atom in all_atoms]
    back += [(d,) for d in range(len(now), len(now) + len(rest))]
    return BatchedValue(arrange_dims(b, line, dim_sizes, back), all_atoms)


def record_collective(merger: DeviceMerger, op: Op) -> None:
    """Record the name of the collective in the `why` of the operations that replace it."""
    what = collective_title(op, merger.atoms.mesh)
    merger.b.why = f"{what}: {op.why}" if op.why else what


def collective_title(op: Op, mesh: Mesh) -> str:
    """Return the name of a replaced collective: `all-gather %h along data`."""
    along = ", ".join(format_axis(axis, mesh) for axis in crossed_axes(op.attrs))
    return f"{op.name.removesuffix('-start')} %{op.result.name} along {along}"


def _all_reduce(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    atoms = merger.atoms.of(op.attrs["axes"])
    return [reduce_sub_axes(merger, merger.get(op.operands[0]), atoms, op.attrs["op"])]


def _all_gather(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    atoms = merger.atoms.of(op.attrs["axes"])
    return [gather_shards(merger, merger.get(op.operands[0]), op.attrs["dim"], atoms)]


def _all_slice(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    atoms = merger.atoms.of(op.attrs["axes"])
    return [distribute_shards(merger, merger.get(op.operands[0]), op.attrs["dim"], atoms)]


def _reduce_scatter(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    atoms = merger.atoms.of(op.attrs["axes"])
    total = reduce_sub_axes(merger, merger.get(op.operands[0]), atoms, op.attrs["op"])
    return [distribute_shards(merger, total, op.attrs["dim"], atoms)]


def _all_to_all(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Exchange chunks: chunk i of position j becomes chunk j of position i."""
    record_collective(merger, op)
    atoms = merger.atoms.of(op.attrs["axes"])
    split_dim, concat = op.attrs["split"], op.attrs["concat"]
    spread = merger.get(op.operands[0])
    own = merger.atoms.union(spread.atoms, atoms)
    value = merger.widen(spread, own)
    count = len(own)
    split: list[Ints] = [(n,) for n in value.type.shape]
    at = count + split_dim
    split[at] = (*axis_sizes(atoms), value.type.shape[at] // prod(axis_sizes(atoms)))
    parts = number_parts(split)
    receiver = dict(zip(atoms, parts[at], strict=False))
    senders = tuple(own.index(atom) for atom in atoms)
    order: list[Ints] = [(receiver.get(atom, own.index(atom)),) for atom in own]
    for d, each in enumerate(parts[count:]):
        piece = each[-1:] if d == split_dim else each
        order.append((*senders, *piece) if d == concat else piece)
    return [BatchedValue(arrange_dims(merger.b, value, split, order), own)]


def _same(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    return [merger.get(op.operands[0])]


REDUCE_RULE: MergeRule = _all_reduce
EXCHANGE_RULES: dict[str, MergeRule] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
}
COLLECTIVE_RULES: dict[str, MergeRule] = {
    **EXCHANGE_RULES,
    **{f"{name}-start": rule for name, rule in EXCHANGE_RULES.items()},
    "all-slice": _all_slice,
    "done": _same,
    "vary": _same,
}
