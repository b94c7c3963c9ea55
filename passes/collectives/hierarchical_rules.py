"""Rules that split each collective into levels."""

from functools import reduce
from math import prod

from shardir.ir.device_groups import device_groups, device_positions, permute_senders
from shardir.ir.module import Op, Value
from shardir.ir.process_levels import ProcessLevels, merge_consecutive
from shardir.ir.sharding import Axes
from shardir.ops.type_checks import Ints
from shardir.passes.collectives.hierarchical_splitter import CollectiveSplitter, SplitRule


def _all_reduce(splitter: CollectiveSplitter, op: Op) -> Value:
    b, kind = splitter.b, op.attrs["op"]
    far = splitter.levels.far_parts(op.attrs["axes"])
    result = splitter.combine_in_device_order(op, op.operands[0])
    if result is None:
        result = splitter.combine_between_processes(
            op,
            op.operands[0],
            lambda near: b.all_reduce(near, axes=far, op=kind, name=splitter.name(op, far)),
        )
    return result


def _reduce_scatter(splitter: CollectiveSplitter, op: Op) -> Value:
    dim, kind, levels = op.attrs["dim"], op.attrs["op"], splitter.levels
    runs = levels.group_by_level(op.attrs["axes"])

    def scatter(value: Value) -> Value:
        for run in runs:
            if levels.is_far(run[0]):
                name = splitter.name(op, run)
                value = splitter.b.reduce_scatter(value, dim=dim, axes=run, op=kind, name=name)
            else:
                value = splitter.slice_run(value, dim, run)
        return value

    total = splitter.combine_in_device_order(op, op.operands[0])
    if total is None:
        return splitter.combine_between_processes(op, op.operands[0], scatter)
    for run in runs:
        total = splitter.slice_run(total, dim, run)
    return total


def _all_gather(splitter: CollectiveSplitter, op: Op) -> Value:
    return splitter.gather(op, op.operands[0], op.attrs["dim"])


def _all_slice(splitter: CollectiveSplitter, op: Op) -> Value:
    result = op.operands[0]
    for run in splitter.levels.group_by_level(op.attrs["axes"]):
        result = splitter.slice_run(result, op.attrs["dim"], run)
    return result


def _all_to_all(splitter: CollectiveSplitter, op: Op) -> Value:
    """Exchange a part of one dimension for a part of the other along each run of axes."""
    (x,), b = op.operands, splitter.b
    runs = splitter.levels.group_by_level(op.attrs["axes"])
    sizes = tuple(prod(axis.size for axis in run) for run in runs)
    split, concat = op.attrs["split"], op.attrs["concat"]
    shape: list[int] = []
    starts: dict[int, int] = {}
    for dim, size in enumerate(x.type.shape):
        starts[dim] = len(shape)
        if dim == split:
            shape += [*sizes, size // prod(sizes)]
        elif dim == concat:
            shape += [*(1 for _ in sizes), size]
        else:
            shape.append(size)
    x = b.reshape(x, result=x.type.with_shape(shape), name=f"{x.name}.parts")
    for i, run in enumerate(runs):
        x = b.all_to_all(
            x,
            split=starts[split] + i,
            concat=starts[concat] + i,
            axes=run,
            name=splitter.name(op, run),
        )
    result: Value = b.reshape(x, result=op.result.type)
    return result


def _collective_permute(splitter: CollectiveSplitter, op: Op) -> Value:
    """Rewrite a permute with named axes to pairs of positions along all axes."""
    levels, b = splitter.levels, splitter.b
    if "pairs" in op.attrs:
        axes, pairs = op.attrs["axes"], op.attrs["pairs"]
    else:
        source, target = op.attrs["source"], op.attrs["target"]
        parts = levels.split((*source, *target))
        axes = merge_consecutive(dict.fromkeys(axis for axis in parts if axis.size > 1))
        if any(a is not b and a.overlaps(b) for a in axes for b in axes):
            return _permute_complete_axes(splitter, op)
        pairs = _permute_pairs(levels, axes, source, target)
    result: Value = b.collective_permute(op.operands[0], axes=axes, pairs=pairs)
    return result


def _permute_complete_axes(splitter: CollectiveSplitter, op: Op) -> Value:
    """Rewrite a permute with different sub-axes of one axis to pairs along the complete axes."""
    levels, b = splitter.levels, splitter.b
    source, target = op.attrs["source"], op.attrs["target"]
    names = dict.fromkeys(axis.name for axis in (*source, *target))
    axes = tuple(levels.full_axis(name) for name in names)
    pairs = _permute_pairs(levels, axes, source, target)
    result: Value = b.collective_permute(op.operands[0], axes=axes, pairs=pairs)
    return result


def _permute_pairs(
    levels: ProcessLevels, axes: Axes, source: Axes, target: Axes
) -> tuple[Ints, ...]:
    """Return the pairs of positions along `axes` for a permute from `source` to `target`."""
    mesh = levels.mesh
    position, sender = device_positions(mesh, axes), permute_senders(mesh, source, target)
    group = device_groups(mesh, axes)[0]
    result = ((int(position[sender[device]]), int(position[device])) for device in group)
    return tuple(sorted(result))


def _axis_index(splitter: CollectiveSplitter, op: Op) -> Value:
    """Return the position along all axes, from those along the axes of each level."""
    b, levels, type = splitter.b, splitter.levels, op.result.type
    constant_part, step = 0, 1
    terms: list[Value] = []
    for run in reversed(levels.group_by_level(op.attrs["axes"])):
        if levels.position_of_process is not None and levels.is_far(run[0]):
            constant_part += step * levels.position(run)
        else:
            index = b.axis_index(axes=run, name=splitter.name(op, run))
            terms.append(index if step == 1 else b.mul(index, b.full(step, type)))
        step *= prod(axis.size for axis in run)
    if constant_part or not terms:
        terms.append(b.full(constant_part, type))
    return reduce(b.add, terms)


HIERARCHICAL_RULES: dict[str, SplitRule] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "collective-permute": _collective_permute,
    "all-slice": _all_slice,
    "axis-index": _axis_index,
}
