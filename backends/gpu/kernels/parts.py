"""Reductions of many elements to few results (split reductions), in two stages.

One stage would leave most of the GPU idle. The first kernel reduces parts, each program one part of
some rows or columns, and stores one partial result per part. The second kernel reduces the partial
results and computes the rest. No atomics are used: the order of all sums is fixed, and results are
bit-reproducible.
"""

from dataclasses import replace

from shardir.backends.gpu.kernels.group import Group
from shardir.backends.gpu.kernels.kernel import Kernel, Launch
from shardir.backends.gpu.kernels.reducing import neutral, reduced
from shardir.backends.gpu.kernels.rounds import Rounds
from shardir.backends.gpu.kernels.sizes import Sizes, above, ceil
from shardir.backends.gpu.kernels.terms import POINTERS, Term
from shardir.backends.gpu.kernels.texts import function_text
from shardir.backends.gpu.kernels.tiled import Tile, begin, loop
from shardir.ir.module import Op
from shardir.ops.elementwise.numerics import HALF_PRECISION_DTYPES


def parts_of(group: Group, tile: Tile, sizes: Sizes) -> int:
    """Return the number of parts of each reduction; 1 if reductions are not split."""
    if not Rounds(group.writer()).are_one:
        return 1
    most = ceil(tile.ended.size, tile.ended.length * sizes.share)
    return max(min(ceil(sizes.programs, tile.programs), most), 1)


def in_parts(group: Group, tile: Tile, parts: int) -> Kernel:
    """Return the two kernels of a group whose reductions are split into parts."""
    ended = tile.ended
    pieces = ceil(ceil(ended.size, ended.length), parts)
    chunk = pieces * ended.length
    parts = ceil(ended.size, chunk)
    if parts * chunk != ended.size and not ended.mask:
        ended = replace(ended, mask=group.own(f"{ended.number}_mask" if tile.kept else "mask"))
    elif parts * chunk == ended.size:
        ended = replace(ended, mask="")
    tile = replace(tile, ended=ended)
    reductions = Rounds(group.writer(*tile.sides)).reductions
    scratch = {op: f"{group.names[op.result]}_parts" for op in reductions}
    size = tile.kept.size if tile.kept else 1
    lines = [
        group.allocation(name, (parts, size) if tile.kept else (parts,), _held(op))
        for op, name in scratch.items()
    ]
    first, launch = _first(group, tile, scratch, (chunk, parts))
    second, last = _second(group, tile, scratch, parts)
    return group.kernel([first, second], [launch, last], lines)


def _held(op: Op) -> str:
    """Return the element type of partial results."""
    dtype = op.result.type.dtype
    return "f32" if dtype in HALF_PRECISION_DTYPES else dtype


def _first(
    group: Group, tile: Tile, scratch: dict[Op, str], cut: tuple[int, int]
) -> tuple[str, Launch]:
    """Return the kernel that reduces each part and stores the yielded values that are
    not reduced.
    """
    chunk, parts = cut
    writer = group.writer(*tile.sides)
    begin(group, tile, writer)
    part, first = group.own("part"), group.own("first")
    writer.lines += [f"{part} = {group.program(1)}", f"{first} = {part} * {chunk}"]
    rounds = Rounds(writer)
    stores = [store for store in group.stores() if rounds.is_walked(store[0])]
    yields = [(value, pointer) for value, pointer, _ in stores]
    loop(group, tile, writer, tuple(scratch), yields, f"{first}, {first} + {chunk}")
    kept = tile.kept
    for op, name in scratch.items():
        spans = frozenset[str]().union(*(side.spans for side in tile.sides))
        term = Term(f"{group.names[op.result]}_acc", op.result.type.dtype, spans=spans)
        text = reduced(op, term, "", writer.axis(tile.ended))
        place = f"{part} * {kept.size} + {kept.number}" if kept else part
        mask = f", {kept.mask}" if kept and kept.mask else ""
        writer.line(f"tl.store({name}_ptr + {place}, {text}{mask})")
    loaded = [value for value in group.params if value in writer.loaded]
    pointers = group.pointers(loaded)
    pointers.update((pointer, type) for _, pointer, type in stores)
    pointers.update((f"{name}_ptr", POINTERS[_held(op)]) for op, name in scratch.items())
    launch = Launch(
        f"{group.name}_parts",
        (tile.programs, parts),
        pointers,
        tile.constants,
        tile.warps,
    )
    return function_text(launch, group.docstring(), writer.lines), launch


def _second(group: Group, tile: Tile, scratch: dict[Op, str], parts: int) -> tuple[str, Launch]:
    """Return the kernel that reduces the partial results and computes the values that depend on
    them.
    """
    rows = above(parts)
    kept = tile.kept
    if kept:
        columns = min(max(8192 // rows, 1), 64, above(kept.size))
        slot = "[None, :]" if columns > 1 else ""
        kept = group.side("column", kept.axes, kept.size, columns, "COLUMNS", slot)
    slot = "[:, None]" if kept and kept.length > 1 else ""
    part = group.side("part", (), parts, rows, "PARTS", slot)
    both = Tile(kept, part)
    writer = group.writer(*([kept] if kept else []))
    begin(group, both, writer)
    writer.lines += [f"{part.number} = {part.line}", *part.bound()]
    masks = " & ".join(side.mask for side in (part, kept) if side and side.mask)
    for op, name in scratch.items():
        place = f"{part.number} * {kept.size} + {kept.number}" if kept else part.number
        other = f", {masks}, other={neutral(op).text}" if masks else ""
        term = Term(f"tl.load({name}_ptr + {place}{other})", op.result.type.dtype)
        axis = "0, keep_dims=True" if kept and kept.length > 1 else "0"
        text = reduced(op, term, "", axis)
        spans = kept.spans if kept else frozenset[str]()
        writer.name(op.result, writer.as_used(op, text), spans)
    rounds = Rounds(writer)
    stores = [store for store in group.stores() if not rounds.is_walked(store[0])]
    writer.emit(writer.closure([value for value, _, _ in stores], through=False))
    for value, pointer, _ in stores:
        writer.store(value, pointer)
    pointers = {f"{name}_ptr": POINTERS[_held(op)] for op, name in scratch.items()}
    pointers.update(group.pointers([value for value in group.params if value in writer.loaded]))
    pointers.update((pointer, type) for _, pointer, type in stores)
    constants = {side.block: side.length for side in (part, kept) if side and side.length > 1}
    launch = Launch(f"{group.name}_kernel", (both.programs,), pointers, constants, both.warps)
    docstring = [f"What follows from the parts that `{group.name}_parts` reduced."]
    return function_text(launch, docstring, writer.lines), launch
