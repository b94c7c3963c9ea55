"""`argmax` and `argmin` along a dimension.

The result is the index of the first NaN, or else of the first extreme. If lines are adjacent in
memory, a vector has an element of each. For long contiguous lines, the extreme of each chunk is
computed without its index, which is searched at the end in the one chunk that matters; for shorter
lines, each lane of a vector tracks its extreme and index. Few long lines are split into parts for
all workers, and the extreme of the parts is selected.
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir.backends.cpu.native.data import Context, Phase, Rule, View, packed
from shardir.backends.cpu.native.moves import extreme_bodies as bodies
from shardir.backends.cpu.native.moves.extreme_bodies import BESIDE, PIECE
from shardir.backends.cpu.native.moves.grid import Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.ir import Op
from shardir.types import TensorType

PIECED = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64")
"""Types that are compared without widening."""
PART = 1 << 18
"""Bytes of a part of a long line."""
FEW = 8
"""Minimum number of lines that are not split."""
MOST = 1 << 31
"""Maximum line length: indices have 32 bits."""


def extreme_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower to one phase over all lines, or to phases over parts of lines."""
    (x,), (y,), dim = operands, results, op.attrs["dim"]
    steps, step = x.shape[dim], x.strides[dim]
    if steps >= MOST:
        return None
    if y.size == 0:
        return []
    lines = x._replace(
        shape=(*x.shape[:dim], *x.shape[dim + 1 :]),
        strides=(*x.strides[:dim], *x.strides[dim + 1 :]),
    )
    contiguous = step == x.itemsize and x.dtype in PIECED
    if contiguous and y.size < FEW and steps * step >= 2 * PART:
        return _in_parts(op.name, lines, y, steps, context)
    return [_phase(op.name, lines, y, steps, step, context)]


def _phase(name: str, x: View, y: View, steps: int, step: int, context: Context) -> Phase:
    """Return the phase that writes the index of the extreme of each line; `x` views line starts."""
    found = nest([x, y])
    size, lanes = x.itemsize, context.machine.lanes(max(x.itemsize, 4))
    is_truth = x.dtype == "bool" and step == size
    adjacent_loops = [
        loop for loop in found.loops if loop.strides[0] == size and loop.extent >= lanes
    ]
    column = found.loops[-1] if found.loops else None
    if is_truth:
        variant = "first"
    elif step == size and x.dtype in PIECED and steps >= PIECE * context.machine.lanes(size):
        variant = "pieces"
    elif step == size and steps >= lanes:
        variant = "along" if steps < 8 * lanes else "far"
    elif adjacent_loops:
        variant, column = "beside", adjacent_loops[-1]
    else:
        variant = "items"
    rows = [loop for loop in found.loops if loop is not column]
    extent = column.extent if column else 1
    block_columns = max(1, -(-extent // (4 * context.workers)))
    if variant == "beside":
        block_columns = min(BESIDE, -(-block_columns // 64) * 64)
    grid = grid_of([x, y], found, rows[-1] if rows else None, column, 1, block_columns)
    bodies_by_variant: dict[str, Callable[..., None]] = {
        "along": partial(bodies.along, 1),
        "far": partial(bodies.along, 4),
        "beside": bodies.beside,
        "items": bodies.items,
        "first": bodies.first,
        "pieces": bodies.pieces,
    }
    kernel = grid_kernel(
        f"{name}_{variant}_{x.dtype}_{y.dtype}",
        Form(2, extras=2),
        partial(bodies_by_variant[variant], name == "argmax", x.dtype, y.dtype),
    )
    elements = y.size * steps
    cost = elements * size / (40 if variant in ("first", "pieces") else 16)
    cost = elements * 1.5 if variant == "items" else cost
    return grid.phase(kernel, cost, context.workers, name, (steps, step))


def _in_parts(name: str, x: View, y: View, steps: int, context: Context) -> list[Phase]:
    """Return the phases for the extreme of each part of lines of `steps` elements, then of each
    line."""
    size = x.itemsize
    part = PART // size
    whole, rest = divmod(steps, part)
    count = whole + (rest > 0)
    slot = context.temporary(4 * count * y.size)
    type = TensorType((*x.shape, count), "i32")
    indices = View(slot, 0, type.shape, packed(type), type.dtype)
    parts = x._replace(shape=(*x.shape, whole), strides=(*x.strides, PART))
    made = [_phase(name, parts, indices._replace(shape=parts.shape), part, size, context)]
    first = indices._replace(shape=x.shape, strides=indices.strides[:-1])
    if rest:
        last = x._replace(offset=x.offset + whole * PART)
        to = first._replace(offset=4 * whole)
        made.append(_phase(name, last, to, rest, size, context))
    views = [x, first, y]
    grid = grid_of(views, nest(views), None, None, 1, 1)
    kernel = grid_kernel(
        f"{name}_parts_{x.dtype}_{y.dtype}",
        Form(3, extras=2),
        partial(bodies.parts, name == "argmax", x.dtype, y.dtype),
    )
    return [*made, grid.phase(kernel, 20.0 * count * y.size, 1, name, (count, part))]


RULES: dict[str, Rule] = {"argmax": extreme_rule, "argmin": extreme_rule}
"""Lines of 2^31 elements or more are not supported."""
