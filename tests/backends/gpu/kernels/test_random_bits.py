"""Kernels of random bits and keys give the bits of the reference."""

from typing import Any

import numpy as np
import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.gpu.kernels import KernelRefusal, KernelText, write_random_kernel
from shardir.backends.gpu.kernels.compiling import compile_ahead
from shardir.interpret.interpreter import apply_op
from shardir.ir.builder import Builder
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import TensorType
from tests.backends.gpu.kernels.kernel_execution import SMALL_TILES, Interpreter
from tests.dtype_groups import UNSIGNED

KEY = TensorType((), "key")
KEYS = TensorType((2, 3), "key")
START = TensorType((), "i32")


def random_op(name: str, keys: TensorType, result: TensorType, **attrs: Any) -> Op:
    """Return an operation on keys; operations that compute a shard have start indices."""
    b = Builder()
    starts = [START] * (result.rank - keys.rank) if name.endswith("_at") else []
    operands = [Value(keys, "key"), *(Value(start, f"start.{i}") for i, start in enumerate(starts))]
    b.emit(OPS[name], *operands, result=result, **attrs)
    return b.ops[0]


def random_kernel(op: Op) -> KernelText:
    kernel = write_random_kernel(op, "group", SMALL_TILES)
    assert isinstance(kernel, KernelText)
    return kernel


FULL_OPS = [
    *(random_op("random_bits", KEY, TensorType((5, 30), dtype)) for dtype in UNSIGNED),
    random_op("random_bits", KEYS, TensorType((2, 3, 40), "u32")),
    random_op("random_split", KEY, TensorType((3,), "key")),
    random_op("random_split", KEYS, TensorType((2, 3, 2), "key")),
]
SHARD_OPS = [
    random_op("random_bits_at", KEY, TensorType((4, 30), "u32"), shape=(16, 60)),
    random_op("random_bits_at", KEY, TensorType((9,), "u16"), shape=(18,)),
    random_op("random_bits_at", KEYS, TensorType((2, 3, 4, 5), "u64"), shape=(8, 10)),
    random_op("random_split_at", KEY, TensorType((2,), "key"), shape=(4,)),
]


@pytest.mark.parametrize(
    "op", [*FULL_OPS, *SHARD_OPS], ids=lambda op: f"{op.name} {op.result.type}"
)
def test_random_bits_equal_the_reference(interpreter: Interpreter, op: Op) -> None:
    rng = np.random.default_rng(11)
    keys = rng.integers(0, 2**64, op.operands[0].type.shape, np.uint64)
    args = [keys, *(np.array(n, np.int32) for n in (3, -2)[: len(op.operands) - 1])]
    (bits,) = interpreter.group(random_kernel(op), op, args)
    np.testing.assert_array_equal(bits, apply_op(op, args))


def test_the_text_of_a_random_kernel_follows_threefry() -> None:
    op = random_op("random_bits_at", KEY, TensorType((4, 32), "u32"), shape=(16, 64))
    kernel = random_kernel(op)
    body = kernel.text.partition('piece of [16, 64]."""\n')[2]
    assert (
        body
        == """\
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(key_ptr)
    which = at
    start_0 = tl.maximum(tl.load(start_0_ptr), 0).to(tl.int32)
    start_1 = tl.maximum(tl.load(start_1_ptr), 0).to(tl.int32)
    place = (start_0 + which // 32) * 64 + (start_1 + which % 32)
    high, low = threefry(key, tl.full((), 0, tl.uint32), place.to(tl.uint32))
    tl.store(v0_ptr + at, high ^ low)
"""
    )
    assert kernel.operands == ("key", "start_0", "start_1")
    assert kernel.helpers == ("four_rounds", "threefry")


def test_counters_of_large_results_have_two_words() -> None:
    kernel = random_kernel(random_op("random_bits", KEY, TensorType((1 << 20, 1 << 13), "u8")))
    assert "threefry(key, (place >> 32).to(tl.uint32), place.to(tl.uint32))" in kernel.text
    assert "tl.program_id(0).to(tl.int64)" in kernel.text


def test_the_original_random_scheme_is_left_to_torch() -> None:
    op = random_op("random_bits", KEY, TensorType((4,), "u32"), scheme=Symbol("original"))
    assert write_random_kernel(op, "group") == KernelRefusal(
        "random_bits makes the words of scheme=original in pairs"
    )


def test_random_kernels_compile() -> None:
    for op in (FULL_OPS[0], FULL_OPS[3], SHARD_OPS[0]):
        assert compile_ahead(random_kernel(op), 90)["group_kernel"]
