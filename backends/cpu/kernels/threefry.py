"""Random bits: threefry-2x32 on vectors, bit-identical to `shardir.ops.random.threefry`.

A nest iterates over keys, the result, and a counter, which is the flat index of an element among
all elements of its key. Several vectors are hashed together, so that their long dependency chains
overlap. A partial group, or one with non-contiguous elements, is written through scratch memory.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, literal, vector_type
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, Rule
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    BlockGrid,
    DynamicStart,
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.copy_bodies import item_type
from shardir.backends.cpu.kernels.data_movement.loop_nest import LoopNest, loop_nest_of
from shardir.ir.dtypes import RBG_KEYS
from shardir.ir.module import Op
from shardir.ops.random.threefry import SCHEMES, num_counters

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
VECTORS_PER_GROUP = 4
"""Vectors that are hashed together."""
_MAX_START = 1 << 62
BLOCK_ITEMS = 1 << 13
"""Elements of a block, which is also the limit of its columns."""

HashWords = tuple[LLVMValue, LLVMValue]


def bits_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower `random_bits`, `random_split`, and their variants that compute a part of the result."""
    (keys, *starts), (y,) = operands, results
    if y.size == 0:
        return []
    if keys.dtype in RBG_KEYS:
        return None
    rank = len(keys.shape)
    piece = y.shape[rank:]
    shape = op.attrs.get("shape", piece)
    scheme = str(op.attrs.get("scheme", SCHEMES[0]))
    steps = [prod(shape[d + 1 :]) for d in range(len(shape))]
    if len({start.dtype for start in starts}) > 1:
        return None
    spread = BufferView(
        keys.slot, keys.offset, y.shape, (*keys.strides, *(0 for _ in piece)), "key"
    )
    index = BufferView(0, 0, y.shape, (*(0 for _ in range(rank)), *steps), "i64")
    found = loop_nest_of([spread, y, index], counters=1)
    split = op.name.startswith("random_split")
    size, width = prod(shape), y.itemsize * 8
    count = 2 * size if split else num_counters(size, width)
    moves = [
        DynamicStart(view, _MAX_START, step) for view, step in zip(starts, steps, strict=False)
    ]
    form = KernelForm(2, 1, 2, (2, starts[0].dtype) if starts else None)
    result = "split" if split else f"bits{width}"
    name = f"random_{result}_{scheme}{'_at_' + starts[0].dtype if starts else ''}"
    body = partial(_draw, partial(_draw_bits, result, width, scheme), y.itemsize)
    grid = _grid([keys, y], found)
    kernel = grid_kernel(name, form, body)
    price = 1.0 if scheme == SCHEMES[0] else 2.0
    return [
        grid.phase(
            kernel, y.size * price, context.workers, op.name, (count, size),
            moves if starts else None,
        )
    ]  # fmt: skip


def pairs_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower `random_fold_in` and `random_hash`: a separate pair of counters for each key."""
    (y,) = results
    if y.size == 0:
        return []
    views = [*operands, y]
    grid = _grid(views, loop_nest_of(views))
    body = partial(_draw, partial(_hash_key_pairs, len(operands) - 1), y.itemsize)
    kernel = grid_kernel(op.name, KernelForm(len(views)), body)
    return [grid.phase(kernel, y.size * 2.0, context.workers, op.name)]


def _grid(views: Sequence[BufferView], found: LoopNest) -> BlockGrid:
    column = found.loops[-1] if found.loops else None
    row = found.loops[-2] if len(found.loops) > 1 else None
    extent = column.extent if column else 1
    return block_grid_of(views, found, row, column, max(1, BLOCK_ITEMS // extent), BLOCK_ITEMS)


def _lanes(f: LLVMFunction) -> int:
    return f.machine.lanes(4)


DrawGroup = Callable[
    [LLVMFunction, GridBlock, Sequence[LLVMValue], LLVMValue, LLVMValue], list[LLVMValue]
]
"""(row addresses, first column, columns left) -> the vectors to store."""


def _draw(draw_group: DrawGroup, size: int, f: LLVMFunction, block: GridBlock) -> None:
    """Emit groups of vectors along all rows of a block."""
    lanes, group = _lanes(f), _lanes(f) * VECTORS_PER_GROUP
    target = len(block.addresses) - 1
    while block.addresses[target].type != "ptr":
        target -= 1
    stride = block.column_strides[target]
    with f.loop(0, block.rows) as i:
        rows = [
            f.offset(address, i * step) if address.type == "ptr" else address + i * step
            for address, step in zip(block.addresses, block.row_strides, strict=True)
        ]
        with f.loop(0, block.columns, group) as at:
            left = block.columns - at
            values = draw_group(f, block, rows, at, left)
            whole = left.is_("sge", group) & stride.is_("eq", size)
            place = f.offset(rows[target], at * stride)
            direct = f.select(whole, place, block.scratch)
            for number, value in enumerate(values):
                f.store(value, f.offset(direct, number * lanes * size), 1)
            type = item_type(size)
            with f.loop(0, f.select(whole, 0, f.umin(left, group))) as k:
                one = f.load(f.offset(block.scratch, k * size), type, 1)
                f.store(one, f.offset(place, k * stride), 1)


def _draw_bits(
    result: str,
    width: int,
    scheme: str,
    f: LLVMFunction,
    block: GridBlock,
    rows: Sequence[LLVMValue],
    at: LLVMValue,
    left: LLVMValue,
) -> list[LLVMValue]:
    lanes = _lanes(f)
    count, size = block.extra(0), block.extra(1)
    indices, keys = [], []
    steps = LLVMValue(
        "<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">", f"<{lanes} x i64>", f
    )
    for number in range(VECTORS_PER_GROUP):
        first = at + number * lanes
        start = rows[2] + first * block.column_strides[2]
        along = steps * f.splat(block.column_strides[2], lanes)
        indices.append(f.splat(start, lanes) + along)
        keys.append(_load_columns(f, rows[0], block.column_strides[0], first, at + left, "i64"))
    if scheme == SCHEMES[0]:
        words = _hash_all(f, keys, [_split_words(index) for index in indices])
        return [_join_words(*pair) if width == 64 else _truncate_words(pair[0] ^ pair[1], width)
                for pair in words]  # fmt: skip
    if width < 64:
        per_word = 32 // width
        at_word = [index >> (per_word.bit_length() - 1) for index in indices]
        whole = _original_words(f, keys, at_word, count)
        shifts = [(_low_halves(index) & (per_word - 1)) * width for index in indices]
        return [
            _truncate_words(word >> shift, width) for word, shift in zip(whole, shifts, strict=True)
        ]
    if result == "split":
        high = [index << 1 for index in indices]
        low = [index + 1 for index in high]
    else:
        high, low = indices, [index + f.splat(size, lanes) for index in indices]
        count = size << 1
    pairs = zip(
        _original_words(f, keys, high, count), _original_words(f, keys, low, count), strict=True
    )
    return [_join_words(*pair) for pair in pairs]


def _hash_key_pairs(
    words: int,
    f: LLVMFunction,
    block: GridBlock,
    rows: Sequence[LLVMValue],
    at: LLVMValue,
    left: LLVMValue,
) -> list[LLVMValue]:
    lanes = _lanes(f)
    keys, pairs = [], []
    for number in range(VECTORS_PER_GROUP):
        first = at + number * lanes
        keys.append(_load_columns(f, rows[0], block.column_strides[0], first, at + left, "i64"))
        data = [
            _load_columns(f, rows[k], block.column_strides[k], first, at + left, "i32")
            for k in range(1, 1 + words)
        ]
        pairs.append((data[0] if words == 2 else f.splat(f.value(0, "i32"), lanes), data[-1]))
    return [_join_words(*pair) for pair in _hash_all(f, keys, pairs)]


def _load_columns(
    f: LLVMFunction, row: LLVMValue, stride: LLVMValue, first: LLVMValue, stop: LLVMValue, type: str
) -> LLVMValue:
    """Load the elements of a vector of columns; columns past the end repeat the last one."""
    lanes = _lanes(f)
    result = f.variable(vector_type(type, lanes))
    last = stop - 1

    def same() -> None:
        result.set(f.splat(f.load(row, type, 1), lanes))

    def each() -> None:
        with f.loop(0, lanes) as lane:
            column = f.umin(first + lane, last)
            value = f.load(f.offset(row, column * stride), type, 1)
            f.store(value, f.offset(result.address, lane, type))

    f.if_else(stride.is_("eq", 0), same, each)
    return result.get()


def _split_words(words: LLVMValue) -> HashWords:
    return _low_halves(words >> 32), _low_halves(words)


def _low_halves(words: LLVMValue) -> LLVMValue:
    return words.to(f"<{_lanes(words.function)} x i32>", "trunc")


def _join_words(high: LLVMValue, low: LLVMValue) -> LLVMValue:
    wide = f"<{_lanes(high.function)} x i64>"
    return (high.to(wide, "zext") << 32) | low.to(wide, "zext")


def _truncate_words(words: LLVMValue, width: int) -> LLVMValue:
    return words if width == 32 else words.to(f"<{_lanes(words.function)} x i{width}>", "trunc")


def _original_words(
    f: LLVMFunction, keys: Sequence[LLVMValue], at: Sequence[LLVMValue], count: LLVMValue
) -> list[LLVMValue]:
    """Return the words at `at` of the `count` words of the original scheme."""
    lanes = _lanes(f)
    half = f.splat((count + 1) >> 1, lanes)
    pairs, behind = [], []
    for word in at:
        later = word.is_("uge", half)
        first = f.select(later, word - half, word)
        second = first + half
        inside = second.is_("ult", f.splat(count, lanes))
        pairs.append((_low_halves(first), _low_halves(f.select(inside, second, 0))))
        behind.append(later)
    result = _hash_all(f, keys, pairs)
    return [f.select(later, low, high) for later, (high, low) in zip(behind, result, strict=True)]


def _hash_all(
    f: LLVMFunction, keys: Sequence[LLVMValue], pairs: Sequence[HashWords]
) -> list[HashWords]:
    """Return the hashes of pairs of counters; their rounds are interleaved."""
    schedules = []
    state = []
    for key, (first, second) in zip(keys, pairs, strict=True):
        high, low = _split_words(key)
        schedules.append((high, low, (high ^ low) ^ _PARITY))
        state.append((first + high, second + low))
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            sums = [x + y for x, y in state]
            rotated = [_rotate_left(f, y, rotation) for _, y in state]
            state = [(x, x ^ y) for x, y in zip(sums, rotated, strict=True)]
        state = [
            (x + key[(group + 1) % 3], y + key[(group + 2) % 3] + (group + 1))
            for (x, y), key in zip(state, schedules, strict=True)
        ]
    return state


def _rotate_left(f: LLVMFunction, words: LLVMValue, by: int) -> LLVMValue:
    amount = LLVMValue(literal(words.type, by), words.type, f)
    return f.intrinsic("fshl", words, words, amount)


RULES: dict[str, Rule] = {
    "random_bits": bits_rule,
    "random_bits_at": bits_rule,
    "random_split": bits_rule,
    "random_split_at": bits_rule,
    "random_fold_in": pairs_rule,
    "random_hash": pairs_rule,
}
"""Both schemes and all bit widths are supported."""
