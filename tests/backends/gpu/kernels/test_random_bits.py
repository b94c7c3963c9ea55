"""Random bits and keys made by kernels, against the reference, bit for bit."""

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
from shardir.ir.types import UNSIGNED, TensorType
from tests.backends.gpu.kernels.kernel_execution import TINY, Interpreter

KEY = TensorType((), "key")
KEYS = TensorType((2, 3), "key")
PLACE = TensorType((), "i32")


def drawn(name: str, keys: TensorType, result: TensorType, **attrs: Any) -> Op:
    """An operation on keys, with starts where it makes a piece."""
    b = Builder()
    starts = [PLACE] * (result.rank - keys.rank) if name.endswith("_at") else []
    operands = [Value(keys, "key"), *(Value(start, f"start.{i}") for i, start in enumerate(starts))]
    b.emit(OPS[name], *operands, result=result, **attrs)
    return b.ops[0]


def written(op: Op) -> KernelText:
    kernel = write_random_kernel(op, "group", TINY)
    assert isinstance(kernel, KernelText)
    return kernel


WHOLE = [
    *(drawn("random_bits", KEY, TensorType((5, 30), dtype)) for dtype in UNSIGNED),
    drawn("random_bits", KEYS, TensorType((2, 3, 40), "u32")),
    drawn("random_split", KEY, TensorType((3,), "key")),
    drawn("random_split", KEYS, TensorType((2, 3, 2), "key")),
]
PIECES = [
    drawn("random_bits_at", KEY, TensorType((4, 30), "u32"), shape=(16, 60)),
    drawn("random_bits_at", KEY, TensorType((9,), "u16"), shape=(18,)),
    drawn("random_bits_at", KEYS, TensorType((2, 3, 4, 5), "u64"), shape=(8, 10)),
    drawn("random_split_at", KEY, TensorType((2,), "key"), shape=(4,)),
]


@pytest.mark.parametrize("op", [*WHOLE, *PIECES], ids=lambda op: f"{op.name} {op.result.type}")
def test_bits_are_those_of_the_reference(interpreter: Interpreter, op: Op) -> None:
    rng = np.random.default_rng(11)
    keys = rng.integers(0, 2**64, op.operands[0].type.shape, np.uint64)
    args = [keys, *(np.array(n, np.int32) for n in (3, -2)[: len(op.operands) - 1])]
    (made,) = interpreter.group(written(op), op, args)
    np.testing.assert_array_equal(made, apply_op(op, args))


def test_a_kernel_reads_as_the_paper_does() -> None:
    op = drawn("random_bits_at", KEY, TensorType((4, 32), "u32"), shape=(16, 64))
    kernel = written(op)
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


def test_counters_of_many_numbers_have_two_words() -> None:
    kernel = written(drawn("random_bits", KEY, TensorType((1 << 20, 1 << 13), "u8")))
    assert "threefry(key, (place >> 32).to(tl.uint32), place.to(tl.uint32))" in kernel.text
    assert "tl.program_id(0).to(tl.int64)" in kernel.text


def test_the_original_scheme_is_left_to_torch() -> None:
    op = drawn("random_bits", KEY, TensorType((4,), "u32"), scheme=Symbol("original"))
    assert write_random_kernel(op, "group") == KernelRefusal(
        "random_bits makes the words of scheme=original in pairs"
    )


def test_kernels_compile() -> None:
    for op in (WHOLE[0], WHOLE[3], PIECES[0]):
        assert compile_ahead(written(op), 90)["group_kernel"]
