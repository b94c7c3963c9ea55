"""Reductions of many elements to few results (split reductions), in two stages.

One stage would leave most of the GPU idle. The first kernel reduces parts, each program one part of
some rows or columns, and stores one partial result per part. The second kernel reduces the partial
results and computes the rest. No atomics are used: the order of all sums is fixed, and results are
bit-reproducible.
"""

from dataclasses import replace

from shardir.backends.gpu.dtypes import POINTER_TYPES
from shardir.backends.gpu.kernels.group import FusedGroup
from shardir.backends.gpu.kernels.kernel import KernelLaunch, KernelText
from shardir.backends.gpu.kernels.kernel_text import function_text
from shardir.backends.gpu.kernels.reduction_rounds import ReductionRounds
from shardir.backends.gpu.kernels.terms import KernelTerm
from shardir.backends.gpu.kernels.tile_reduction import identity_element, reduce_tile
from shardir.backends.gpu.kernels.tile_sizes import TileSizes, ceil_divide, next_power_of_two
from shardir.backends.gpu.kernels.tiled_reduction import (
    ReductionTile,
    write_kept_index,
    write_reduction_loop,
)
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op


def count_parts(group: FusedGroup, tile: ReductionTile, sizes: TileSizes) -> int:
    """Return the number of parts of each reduction; 1 if reductions are not split."""
    if not ReductionRounds(group.make_writer()).is_single_round:
        return 1
    most = ceil_divide(tile.reduced_side.size, tile.reduced_side.length * sizes.min_steps_per_part)
    return max(min(ceil_divide(sizes.min_programs, tile.programs), most), 1)


def write_split_kernel(group: FusedGroup, tile: ReductionTile, parts: int) -> KernelText:
    """Return the two kernels of a group whose reductions are split into parts."""
    ended = tile.reduced_side
    pieces = ceil_divide(ceil_divide(ended.size, ended.length), parts)
    chunk = pieces * ended.length
    parts = ceil_divide(ended.size, chunk)
    if parts * chunk != ended.size and not ended.mask:
        ended = replace(ended, mask=group.own_name(f"{ended.index}_mask" if tile.kept else "mask"))
    elif parts * chunk == ended.size:
        ended = replace(ended, mask="")
    tile = replace(tile, reduced_side=ended)
    reductions = ReductionRounds(group.make_writer(*tile.sides)).reductions
    scratch = {op: f"{group.names[op.result]}_parts" for op in reductions}
    size = tile.kept.size if tile.kept else 1
    lines = [
        group.allocation(name, (parts, size) if tile.kept else (parts,), _partial_dtype(op))
        for op, name in scratch.items()
    ]
    first, launch = _partial_kernel(group, tile, scratch, (chunk, parts))
    second, last = _final_kernel(group, tile, scratch, parts)
    return group.kernel([first, second], [launch, last], lines)


def _partial_dtype(op: Op) -> str:
    """Return the element type of partial results."""
    dtype = op.result.type.dtype
    return "f32" if dtype in NARROW_FLOATS else dtype


def _partial_kernel(
    group: FusedGroup, tile: ReductionTile, scratch: dict[Op, str], split: tuple[int, int]
) -> tuple[str, KernelLaunch]:
    """Return the kernel that reduces each part and stores the yielded values that are
    not reduced.
    """
    chunk, parts = split
    writer = group.make_writer(*tile.sides)
    write_kept_index(group, tile, writer)
    part, first = group.own_name("part"), group.own_name("first")
    writer.lines += [f"{part} = {group.program_id(1)}", f"{first} = {part} * {chunk}"]
    rounds = ReductionRounds(writer)
    stores = [store for store in group.stores() if rounds.has_reduced_axes(store[0])]
    yields = [(value, pointer) for value, pointer, _ in stores]
    write_reduction_loop(group, tile, writer, tuple(scratch), yields, f"{first}, {first} + {chunk}")
    kept = tile.kept
    for op, name in scratch.items():
        spans = frozenset[str]().union(*(side.spans for side in tile.sides))
        term = KernelTerm(f"{group.names[op.result]}_acc", op.result.type.dtype, spans=spans)
        text = reduce_tile(op, term, "", writer.axis(tile.reduced_side))
        place = f"{part} * {kept.size} + {kept.index}" if kept else part
        mask = f", {kept.mask}" if kept and kept.mask else ""
        writer.append_line(f"tl.store({name}_ptr + {place}, {text}{mask})")
    loaded = [value for value in group.params if value in writer.loaded]
    pointers = group.pointers(loaded)
    pointers.update((pointer, type) for _, pointer, type in stores)
    pointers.update(
        (f"{name}_ptr", POINTER_TYPES[_partial_dtype(op)]) for op, name in scratch.items()
    )
    launch = KernelLaunch(
        f"{group.name}_parts",
        (tile.programs, parts),
        pointers,
        tile.constants,
        tile.warps,
    )
    return function_text(launch, group.docstring(), writer.lines), launch


def _final_kernel(
    group: FusedGroup, tile: ReductionTile, scratch: dict[Op, str], parts: int
) -> tuple[str, KernelLaunch]:
    """Return the kernel that reduces the partial results and computes the values that depend on
    them.
    """
    rows = next_power_of_two(parts)
    kept = tile.kept
    if kept:
        columns = min(max(8192 // rows, 1), 64, next_power_of_two(kept.size))
        slot = "[None, :]" if columns > 1 else ""
        kept = group.make_side("column", kept.axes, kept.size, columns, "COLUMNS", slot)
    slot = "[:, None]" if kept and kept.length > 1 else ""
    part = group.make_side("part", (), parts, rows, "PARTS", slot)
    both = ReductionTile(kept, part)
    writer = group.make_writer(*([kept] if kept else []))
    write_kept_index(group, both, writer)
    writer.lines += [f"{part.index} = {part.offsets_text}", *part.mask_lines()]
    masks = " & ".join(side.mask for side in (part, kept) if side and side.mask)
    for op, name in scratch.items():
        place = f"{part.index} * {kept.size} + {kept.index}" if kept else part.index
        other = f", {masks}, other={identity_element(op).text}" if masks else ""
        term = KernelTerm(f"tl.load({name}_ptr + {place}{other})", op.result.type.dtype)
        axis = "0, keep_dims=True" if kept and kept.length > 1 else "0"
        text = reduce_tile(op, term, "", axis)
        spans = kept.spans if kept else frozenset[str]()
        writer.define(op.result, writer.round_if_used(op, text), spans)
    rounds = ReductionRounds(writer)
    stores = [store for store in group.stores() if not rounds.has_reduced_axes(store[0])]
    writer.emit(writer.collect_needed([value for value, _, _ in stores], through=False))
    for value, pointer, _ in stores:
        writer.store(value, pointer)
    pointers = {f"{name}_ptr": POINTER_TYPES[_partial_dtype(op)] for op, name in scratch.items()}
    pointers.update(group.pointers([value for value in group.params if value in writer.loaded]))
    pointers.update((pointer, type) for _, pointer, type in stores)
    constants = {side.block: side.length for side in (part, kept) if side and side.length > 1}
    launch = KernelLaunch(f"{group.name}_kernel", (both.programs,), pointers, constants, both.warps)
    docstring = [f"What follows from the parts that `{group.name}_parts` reduced."]
    return function_text(launch, docstring, writer.lines), launch
