"""Random bits of keys of four words as integer arithmetic, as `shardir/ops/random/philox.py`.

Each element depends on its key and on its index only, so that the arithmetic can be sharded as its
result is. If the blocks of the cipher divide the last dimension, each block is computed once, and
otherwise once for each element.
"""

from collections.abc import Sequence
from math import prod

from shardir.ir.builder import Builder
from shardir.ir.operation import OPS, Attr, Op, Value
from shardir.ir.types import TensorType
from shardir.ops.random.philox import KEY_INCREMENTS, MULTIPLIERS, ROUNDS
from shardir.stablehlo.reading.expansions.arithmetic import Emit, Tensor, full

_LOW_WORD = 0xFFFFFFFF


def draw(b: Builder, keys: Value, starts: Sequence[Value], op: Op) -> Value:
    """Return the bits of an operation `random_bits` or `random_bits_at`.

    `keys` has the four words of each key in its first dimension. `starts` is the position of a
    shard in an array of the shape that the operation states.
    """

    def emit(name: str, *operands: Value, result: TensorType | None = None, **attrs: Attr) -> Value:
        value: Value = b.emit(OPS[name], *operands, result=result, **attrs)
        return value

    result, rank = op.result.type, keys.type.rank - 1
    local = result.shape[rank:]
    whole: tuple[int, ...] = op.attrs.get("shape", local)
    width = result.numpy.itemsize * 8
    count = 2 if width == 64 else 4
    is_whole_block = bool(local) and local[-1] % count == 0 and whole[-1] % count == 0
    if is_whole_block:
        local, whole = (*local[:-1], local[-1] // count), (*whole[:-1], whole[-1] // count)
    grid = (*result.shape[:rank], *local)
    offsets = [Tensor(start, emit).convert("u64") for start in starts]
    if is_whole_block and offsets:
        offsets[-1] = offsets[-1].apply("div", count)
    flat = _indices(emit, grid, rank, whole, offsets)
    blocks = flat if is_whole_block else flat.apply("div", count)
    words = _encrypt([_word(emit, keys, i, grid) for i in range(4)], blocks)
    if width == 64:
        words = [_join(words[0], words[1]), _join(words[2], words[3])]
    elements = [word.convert(result.dtype) for word in words]
    if is_whole_block:
        columns = [each.reshape((*grid, 1)) for each in elements]
        return columns[0].apply("concatenate", *columns[1:], dim=len(grid)).reshape(
            result.shape
        ).value  # fmt: skip
    lane, chosen = flat.apply("rem", count), elements[0]
    for i, element in enumerate(elements[1:], 1):
        chosen = lane.equals(i).where(element, chosen)
    return chosen.value


def _indices(
    emit: Emit, grid: tuple[int, ...], rank: int, whole: tuple[int, ...],
    offsets: Sequence[Tensor],
) -> Tensor:  # fmt: skip
    """Return the flat index of each element of `grid` in an array of the shape `whole`."""
    like = full(emit, 0, TensorType(grid, "u64"))
    flat = like
    for dim, _ in enumerate(whole):
        index = like.iota(rank + dim, "u64")
        if offsets:
            index = index + offsets[dim].broadcast(grid, ())
        flat = flat + index * prod(whole[dim + 1 :])
    return flat


def _word(emit: Emit, keys: Value, i: int, grid: tuple[int, ...]) -> Tensor:
    """Return a word of the key of each element of `grid`; `keys` are words u32."""
    shape = keys.type.shape[1:]
    part = emit(
        "slice", keys, starts=(i, *(0 for _ in shape)), strides=(1,) * (len(shape) + 1),
        result=keys.type.with_shape((1, *shape)),
    )  # fmt: skip
    word = Tensor(part, emit).reshape(shape)
    return word if shape == grid else word.broadcast(grid, range(len(shape)))


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the low and the high word of 64-bit words."""
    return (x & _LOW_WORD).convert("u32"), x.apply("shift_right_logical", 32).convert("u32")


def _join(low: Tensor, high: Tensor) -> Tensor:
    return low.convert("u64") | high.convert("u64").apply("shift_left", 32)


def _encrypt(state: Sequence[Tensor], blocks: Tensor) -> list[Tensor]:
    """Return the four words of each block."""
    counter = _join(state[2], state[3])
    low = counter + blocks
    upper = _join(state[0], state[1]) + (low < counter).convert("u64")
    words, keys = [*_split(low), *_split(upper)], list(state[:2])
    for _ in range(ROUNDS):
        products = [
            words[i].convert("u64") * number for i, number in zip((0, 2), MULTIPLIERS, strict=True)
        ]
        (low0, high0), (low1, high1) = map(_split, products)
        words = [high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0]
        keys = [x + number for x, number in zip(keys, KEY_INCREMENTS, strict=True)]
    return words
