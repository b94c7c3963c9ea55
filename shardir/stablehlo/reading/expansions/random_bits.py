"""Reading of `rng_bit_generator`: Threefry-2x32 and Philox-4x32 as integer arithmetic.

The bits equal those of XLA for CPUs. The state has two words: the key, and a counter, which
increases by the number of blocks that the generator computes.

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from math import prod

from shardir.ir.module import Value
from shardir.ops.random import philox
from shardir.ops.random.threefry import PARITY, ROTATIONS
from shardir.stablehlo.reading.call import (
    OperationReader,
    UnsupportedOperation,
    register_reader,
    rename_results,
)
from shardir.stablehlo.reading.expansions.arithmetic import Tensor, full, tensors_of

Values = tuple[Value, ...]
Pair = tuple[Tensor, Tensor]

_WORD = (1 << 32) - 1


@register_reader("rng_bit_generator")
def _generate_bits(call: OperationReader) -> Values:
    (state,) = tensors_of(call, call.take_operands(1))
    if state.type.dtype != "u64" or state.type.shape != (2,):
        raise UnsupportedOperation(f"its state is {state.type}, and only u64[2] is supported")
    result = call.results[1]
    if result.dtype not in ("u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"):
        raise UnsupportedOperation(f"it generates {result.dtype}")
    algorithm = call.word("rng_algorithm", "algorithm")
    generate = _generate_by_threefry if algorithm == "THREE_FRY" else _generate_by_philox
    is_wide = result.dtype in ("u64", "i64")
    bits, blocks = generate(state, result.shape, is_wide=is_wide)
    key, counter = (_element(state, i) for i in (0, 1))
    new = key.reshape((1,)).apply("concatenate", (counter + blocks).reshape((1,)), dim=0)
    bits = bits.convert(result.dtype)
    return rename_results(call, [new.value, bits.value])


def _element(x: Tensor, i: int) -> Tensor:
    return x.slice_at([i], (1,)).reshape(())


def _words(x: Tensor) -> Pair:
    """Return the low and the high word of a tensor of u64."""
    return (x & _WORD).convert("u32"), (x.apply("shift_right_logical", 32)).convert("u32")


def _join_words(low: Tensor, high: Tensor) -> Tensor:
    return low.convert("u64") | high.convert("u64").apply("shift_left", 32)


def _count_from(start: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return consecutive u64 integers in row-major order."""
    size = prod(shape)
    flat = full(start.emit, 0, start.type.with_shape((size,))).iota(0, "u64")
    return (flat + start.broadcast((size,), ())).reshape(shape)


def _generate_by_threefry(state: Tensor, shape: tuple[int, ...], *, is_wide: bool
                          ) -> tuple[Tensor, int]:  # fmt: skip
    """Hash one counter per element of 64 bits, or one per two elements of a dimension."""
    key, counter = _element(state, 0), _element(state, 1)
    if is_wide:
        return _join_words(*_hash(key, _count_from(counter, shape))), prod(shape)
    dim = _halved_dimension(shape)
    half = (*shape[:dim], -(-shape[dim] // 2), *shape[dim + 1 :]) if shape else (1,)
    pair = (*half[: dim + 1], 1, *half[dim + 1 :])
    first, second = (x.reshape(pair) for x in _hash(key, _count_from(counter, half)))
    both = first.apply("concatenate", second, dim=dim + 1)
    joined = both.reshape((*half[:dim], 2 * half[dim], *half[dim + 1 :]))
    slice_shape = (*half[:dim], shape[dim] if shape else 1, *half[dim + 1 :])
    return joined.slice_at([0] * len(slice_shape), slice_shape).reshape(shape), prod(half)


def _halved_dimension(shape: tuple[int, ...]) -> int:
    """Return the first dimension of even size; without one, the largest."""
    even = [d for d, size in enumerate(shape) if size % 2 == 0]
    if even or not shape:
        return even[0] if even else 0
    return shape.index(max(shape))


def _hash(key: Tensor, counters: Tensor) -> Pair:
    """Return the two words of the Threefry hash of each counter."""
    low, high = _words(key)
    shape = counters.type.shape
    first, second = (x.broadcast(shape, ()) for x in (low, high))
    schedule = (first, second, first ^ second ^ PARITY)
    x, y = _words(counters)
    x, y = x + first, y + second
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x = x + y
            turned = y.apply("shift_left", rotation)
            y = (turned | y.apply("shift_right_logical", 32 - rotation)) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + (group + 1)
    return x, y


def _generate_by_philox(state: Tensor, shape: tuple[int, ...], *, is_wide: bool
                        ) -> tuple[Tensor, int]:  # fmt: skip
    """Compute blocks of four words; elements of 64 bits have two words each."""
    key, counter = _element(state, 0), _element(state, 1)
    size = prod(shape)
    count = -(-size // (2 if is_wide else 4))
    low = _count_from(counter, (count,))
    carry = (low < counter.broadcast((count,), ())).convert("u64")
    words = [*_words(low), *_words(key.broadcast((count,), ()) + carry)]
    keys = [x.broadcast((count,), ()) for x in _words(key)]
    for _ in range(philox.ROUNDS):
        products = [
            words[i].convert("u64") * number
            for i, number in zip((0, 2), philox.MULTIPLIERS, strict=True)
        ]
        (low0, high0), (low1, high1) = map(_words, products)
        words = [high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0]
        keys = [x + number for x, number in zip(keys, philox.KEY_INCREMENTS, strict=True)]
    columns = [x.reshape((count, 1)) for x in words]
    if is_wide:
        columns = [_join_words(*columns[:2]), _join_words(*columns[2:])]
    rows = columns[0].apply("concatenate", *columns[1:], dim=1)
    flat = rows.reshape((count * len(columns),))
    return flat.slice_at([0], (size,)).reshape(shape), count
