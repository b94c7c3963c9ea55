"""What moves nothing is seen with other strides, exactly where NumPy needs no copy either."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.schedule.buffer_views import (
    dimension_order,
    has_same_elements,
    is_row_major,
    operand_strides,
    reshape_strides,
    view_results,
)
from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.module import Value
from shardir.ir.types import TensorType
from tests.op_sample import Sample
from tests.samples import samples_of


def as_array(view: BufferView, array: np.ndarray) -> np.ndarray:
    """What a view shows of the bytes of an array."""
    dtype = TensorType((), view.dtype).numpy
    return np.ndarray(view.shape, dtype, array.tobytes(), view.offset, view.strides)


@st.composite
def layouts(draw: st.DrawFn) -> Any:
    """An array whose elements all differ, its dimensions permuted, cut and turned."""
    shape = draw(st.lists(st.integers(1, 4), max_size=4))
    array = np.arange(int(np.prod(shape))).reshape(shape)
    array = array.transpose(draw(st.permutations(range(len(shape)))))
    return array[tuple(draw(st.sampled_from([slice(None), slice(1, None)])) for _ in shape)]


@given(layouts(), st.data())
def test_a_reshape_is_a_view_where_numpy_makes_one(array: np.ndarray, data: st.DataObject) -> None:
    to = data.draw(st.sampled_from(reshapings(array.size)))
    strides = reshape_strides(array.shape, array.strides, to)
    if strides is None:
        with pytest.raises(ValueError, match="copy"):
            array.reshape(to, copy=False)
    elif array.size:
        seen = np.lib.stride_tricks.as_strided(array, to, strides)
        assert seen.tolist() == array.reshape(to).tolist()


def reshapings(size: int) -> list[tuple[int, ...]]:
    """Shapes of so many elements."""
    shapes: list[tuple[int, ...]] = [(size,), (1, size), (size, 1)]
    for n in range(2, size):
        if size % n == 0:
            shapes += [(n, size // n), (n, 1, size // n)]
            shapes += [(n, m, size // n // m) for m in range(2, size // n) if size // n % m == 0]
    return shapes


@pytest.mark.parametrize(
    "sample",
    samples_of("broadcast", "transpose", "reshape", "slice", "reverse"),
    ids=lambda sample: sample.id,
)
def test_views_show_what_the_operation_means(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    (array,) = (np.asarray(each) for each in sample.arrays())
    view = BufferView(
        0, 0, array.shape, row_major_strides(op.operands[0].type), op.operands[0].type.dtype
    )
    seen = view_results(op, (view,))
    assert seen is not None
    reference = op.spec.reference
    assert reference is not None
    want = reference(array, result=op.result.type, **op.attrs)
    np.testing.assert_array_equal(as_array(seen[0], array), want)


@pytest.mark.parametrize("sample", samples_of("transpose", "reshape"), ids=lambda each: each.id)
def test_an_operand_lies_so_that_the_result_lies_as_demanded(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    wanted = row_major_strides(op.result.type)
    strides = operand_strides(op, wanted)
    assert strides is not None
    view = BufferView(0, 0, op.operands[0].type.shape, strides, op.operands[0].type.dtype)
    seen = view_results(op, (view,))
    assert seen is not None
    assert is_row_major(seen[0])


def test_dimensions_are_ordered_as_they_lie() -> None:
    assert dimension_order(BufferView(0, 0, (2, 3, 4), (4, 32, 8), "f32")) == (1, 2, 0)


def test_repeated_dimensions_are_outermost() -> None:
    assert dimension_order(BufferView(0, 0, (2, 3), (4, 0), "f32")) == (1, 0)


def test_packed_strides_follow_an_order() -> None:
    assert row_major_strides(TensorType((2, 3, 4), "f32"), (2, 0, 1)) == (12, 4, 24)


WORDS = np.arange(96, dtype=np.uint8).reshape(2, 3, 16)


def bits_seen(array: np.ndarray, to: TensorType, strides: tuple[int, ...]) -> BufferView | None:
    """The view of an array's bits as another type."""
    b = Builder(UniqueNames())
    x = Value(TensorType(array.shape, name_of(array)), "x")
    b.bitcast(x, result=to)
    seen = view_results(b.ops[0], (BufferView(0, 0, array.shape, strides, x.type.dtype),))
    return seen[0] if seen else None


def name_of(array: np.ndarray) -> str:
    return f"{array.dtype.kind}{array.dtype.itemsize * 8}"


@pytest.mark.parametrize("dtype", ["u2", "u4", "i8", "f8"])
def test_words_are_their_bytes(dtype: str) -> None:
    words = WORDS.view(dtype)
    parts = words.view("u1").reshape(*words.shape, -1)
    kind = TensorType(parts.shape, "u8")
    seen = bits_seen(words, kind, words.strides)
    assert seen is not None
    np.testing.assert_array_equal(as_array(seen, words), parts)
    back = bits_seen(parts, TensorType(words.shape, name_of(words)), seen.strides)
    assert back is not None
    assert (back.shape, back.strides) == (words.shape, words.strides)


def test_bytes_apart_are_no_words() -> None:
    kind = TensorType((2, 3), "u32")
    assert bits_seen(WORDS[:, :, :4], kind, (96, 32, 2)) is None
    assert bits_seen(WORDS[:, :, :4], kind, (6, 2, 1)) is None


def test_truth_is_a_byte() -> None:
    b = Builder(UniqueNames())
    x = Value(TensorType((4,), "bool"), "x")
    for dtype, is_view in (("u8", True), ("i8", True), ("u16", False), ("f32", False)):
        b.convert(x, result=x.type.with_dtype(dtype))
        seen = view_results(b.ops[-1], (BufferView(0, 0, (4,), (1,), "bool"),))
        assert seen == ((BufferView(0, 0, (4,), (1,), dtype),) if is_view else None)
        assert operand_strides(b.ops[-1], (1,)) == ((1,) if is_view else None)


def test_strides_of_one_element_do_not_matter() -> None:
    row = BufferView(0, 0, (1, 8), (0, 4), "f32")
    assert has_same_elements(row, row._replace(strides=(32, 4)))
    assert not has_same_elements(row, row._replace(strides=(0, -4)))
    assert not has_same_elements(row, row._replace(offset=4))
