"""View operations change strides without copies exactly where NumPy returns views."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.schedule.buffer_views import (
    dimension_order,
    find_in_place_chain,
    has_same_elements,
    is_row_major,
    operand_strides,
    reshape_strides,
    view_results,
)
from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.module import Op, Value
from shardir.ir.types import TensorType
from shardir.text.parser import parse
from tests.op_sample import Sample
from tests.samples import samples_of


def as_array(view: BufferView, array: np.ndarray) -> np.ndarray:
    """Return the elements that a view has in the bytes of an array."""
    dtype = TensorType((), view.dtype).numpy
    return np.ndarray(view.shape, dtype, array.tobytes(), view.offset, view.strides)


@st.composite
def layouts(draw: st.DrawFn) -> Any:
    """Draw an array of distinct elements with permuted, sliced and reversed dimensions."""
    shape = draw(st.lists(st.integers(1, 4), max_size=4))
    array = np.arange(int(np.prod(shape))).reshape(shape)
    array = array.transpose(draw(st.permutations(range(len(shape)))))
    return array[tuple(draw(st.sampled_from([slice(None), slice(1, None)])) for _ in shape)]


@given(layouts(), st.data())
def test_a_reshape_is_a_view_exactly_where_numpy_returns_one(
    array: np.ndarray, data: st.DataObject
) -> None:
    to = data.draw(st.sampled_from(shapes_of_size(array.size)))
    strides = reshape_strides(array.shape, array.strides, to)
    if strides is None:
        with pytest.raises(ValueError, match="copy"):
            array.reshape(to, copy=False)
    elif array.size:
        viewed = np.lib.stride_tricks.as_strided(array, to, strides)
        assert viewed.tolist() == array.reshape(to).tolist()


def shapes_of_size(size: int) -> list[tuple[int, ...]]:
    """Return shapes with this number of elements."""
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
def test_views_have_the_elements_of_the_result(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    (array,) = (np.asarray(each) for each in sample.arrays())
    view = BufferView(
        0, 0, array.shape, row_major_strides(op.operands[0].type), op.operands[0].type.dtype
    )
    viewed = view_results(op, (view,))
    assert viewed is not None
    reference = op.spec.reference
    assert reference is not None
    want = reference(array, result=op.result.type, **op.rule_arguments)
    np.testing.assert_array_equal(as_array(viewed[0], array), want)


@pytest.mark.parametrize("sample", samples_of("transpose", "reshape"), ids=lambda each: each.id)
def test_operand_strides_give_the_demanded_result_strides(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    wanted = row_major_strides(op.result.type)
    strides = operand_strides(op, wanted)
    assert strides is not None
    view = BufferView(0, 0, op.operands[0].type.shape, strides, op.operands[0].type.dtype)
    viewed = view_results(op, (view,))
    assert viewed is not None
    assert is_row_major(viewed[0])


def test_dimensions_are_ordered_by_stride() -> None:
    assert dimension_order(BufferView(0, 0, (2, 3, 4), (4, 32, 8), "f32")) == (1, 2, 0)


def test_broadcast_dimensions_are_outermost() -> None:
    assert dimension_order(BufferView(0, 0, (2, 3), (4, 0), "f32")) == (1, 0)


def test_packed_strides_follow_a_dimension_order() -> None:
    assert row_major_strides(TensorType((2, 3, 4), "f32"), (2, 0, 1)) == (12, 4, 24)


WORDS = np.arange(96, dtype=np.uint8).reshape(2, 3, 16)


def bitcast_view(array: np.ndarray, to: TensorType, strides: tuple[int, ...]) -> BufferView | None:
    """Return the view of an array's bits as another type."""
    b = Builder(UniqueNames())
    x = Value(TensorType(array.shape, dtype_name_of(array)), "x")
    b.bitcast(x, result=to)
    viewed = view_results(b.ops[0], (BufferView(0, 0, array.shape, strides, x.type.dtype),))
    return viewed[0] if viewed else None


def dtype_name_of(array: np.ndarray) -> str:
    return f"{array.dtype.kind}{array.dtype.itemsize * 8}"


@pytest.mark.parametrize("dtype", ["u2", "u4", "i8", "f8"])
def test_bitcasts_between_words_and_bytes_are_views(dtype: str) -> None:
    words = WORDS.view(dtype)
    parts = words.view("u1").reshape(*words.shape, -1)
    kind = TensorType(parts.shape, "u8")
    viewed = bitcast_view(words, kind, words.strides)
    assert viewed is not None
    np.testing.assert_array_equal(as_array(viewed, words), parts)
    back = bitcast_view(parts, TensorType(words.shape, dtype_name_of(words)), viewed.strides)
    assert back is not None
    assert (back.shape, back.strides) == (words.shape, words.strides)


def test_bitcasts_of_strided_bytes_are_not_views() -> None:
    kind = TensorType((2, 3), "u32")
    assert bitcast_view(WORDS[:, :, :4], kind, (96, 32, 2)) is None
    assert bitcast_view(WORDS[:, :, :4], kind, (6, 2, 1)) is None


def test_conversions_of_bool_to_bytes_are_views() -> None:
    b = Builder(UniqueNames())
    x = Value(TensorType((4,), "bool"), "x")
    for dtype, is_view in (("u8", True), ("i8", True), ("u16", False), ("f32", False)):
        b.convert(x, result=x.type.with_dtype(dtype))
        viewed = view_results(b.ops[-1], (BufferView(0, 0, (4,), (1,), "bool"),))
        assert viewed == ((BufferView(0, 0, (4,), (1,), dtype),) if is_view else None)
        assert operand_strides(b.ops[-1], (1,)) == ((1,) if is_view else None)


def test_strides_of_dimensions_of_size_1_are_ignored() -> None:
    row = BufferView(0, 0, (1, 8), (0, 4), "f32")
    assert has_same_elements(row, row._replace(strides=(32, 4)))
    assert not has_same_elements(row, row._replace(strides=(0, -4)))
    assert not has_same_elements(row, row._replace(offset=4))


def operation(operand: str, line: str) -> Op:
    """An operation on `%x`."""
    result = line.rpartition(" : ")[2]
    text = f"func @f(%x: {operand}) -> ({result}) {{\n  %y = {line}\n  return %y\n}}\n"
    return parse(text).main.body.ops[0]


def packed(op: Op, offset: int = 0) -> BufferView:
    """The operand of an operation, row by row."""
    type = op.operands[0].type
    strides = row_major_strides(type)
    return BufferView(1, offset, type.shape, strides, type.dtype)


@pytest.mark.parametrize(
    ("operand", "line", "offset"),
    [
        ("f32[4]", "exp(%x) : f32[4]", 0),
        ("i32[4]", "convert(%x) : i8[4]", 0),
        ("bool[4]", "convert(%x) : i32[4]", 0),
        ("u8[2, 4]", "bitcast(%x) : u32[2]", 2),
        ("key[2]", "bitcast(%x) : u32[2, 2]", 0),
        ("u32[2, 2]", "bitcast(%x) : key[2]", 0),
    ],
)
def test_other_operations_have_no_views(operand: str, line: str, offset: int) -> None:
    op = operation(operand, line)
    assert view_results(op, [packed(op, offset)]) is None


def test_words_that_lie_at_a_multiple_of_their_size_are_seen() -> None:
    op = operation("u8[2, 4]", "bitcast(%x) : u32[2]")
    assert view_results(op, [packed(op, 4)]) == (BufferView(1, 4, (2,), (4,), "u32"),)


def test_a_barrier_shows_all_its_operands() -> None:
    op = operation("f32[4]", "optimization_barrier(%x) : f32[4]")
    assert view_results(op, [packed(op)]) == (packed(op),)


@pytest.mark.parametrize(
    ("operand", "line", "strides", "wanted"),
    [
        ("f32[4]", "exp(%x) : f32[4]", (4,), None),
        ("bool[4]", "convert(%x) : i8[4]", (3,), (3,)),
        ("u32[2]", "bitcast(%x) : u8[2, 4]", (12, 1), (12,)),
        ("u32[2]", "bitcast(%x) : u8[2, 4]", (12, 2), None),
        ("u8[2, 4]", "bitcast(%x) : u32[2]", (4,), None),
        ("key[2]", "bitcast(%x) : u32[2, 2]", (8, 4), None),
        ("f32[4]", "reverse(%x, dims=[0]) : f32[4]", (4,), None),
        ("f32[4]", "slice(%x, starts=[1], strides=[1]) : f32[3]", (4,), None),
    ],
)
def test_strides_of_an_operand_follow_from_those_of_the_result(
    operand: str, line: str, strides: tuple[int, ...], wanted: tuple[int, ...] | None
) -> None:
    assert operand_strides(operation(operand, line), strides) == wanted


UPDATE = "dynamic_update_slice(%{}, %u, %i) : f32[8]"


def chain_of(lines: list[str], last: str = "b", returns: str = "%b") -> list[str] | None:
    """The names of the values that share the buffer of `%x`; `lines` compute the last one."""
    types = ", ".join("f32[8]" for _ in returns.split(", "))
    text = "".join(f"  {line}\n" for line in lines)
    params = "%x: f32[8], %z: f32[8], %u: f32[2], %i: i32[], %p: bool[]"
    block = parse(f"func @f({params}) -> ({types}) {{\n{text}  return {returns}\n}}\n").main.body
    values = {value.name: value for value in block.values()}
    found = find_in_place_chain(block, values["x"], values[last])
    return None if found is None else [value.name for value in found]


def test_updates_share_a_buffer() -> None:
    lines = [f"%a = {UPDATE.format('x')}", f"%b = {UPDATE.format('a')}"]
    assert chain_of(lines) == ["a", "b"]
    assert chain_of(["%c = exp(%x) : f32[8]", *lines], returns="%b, %c") == ["a", "b"]
    # A result of another operation is no alias.
    assert chain_of(["%c = exp(%x) : f32[8]", *lines, "%d = sin(%c) : f32[8]"]) == ["a", "b"]
    inner = "    (%e: f32[8]) =>\n    %g = sin(%e) : f32[8]\n    yield %g\n  }"
    fused = f"%c = fused(%x) : f32[8] {{\n{inner}"
    assert chain_of([fused, *lines, "%d = sin(%c) : f32[8]"]) == ["a", "b"]


VIEW = "%c = reverse(%x, dims=[0]) : f32[8]"
BRANCH = "%c = case(%p) : f32[8] {\n    yield %x\n  } {\n    yield %z\n  }"


@pytest.mark.parametrize(
    ("lines", "returns"),
    [
        # Another array is updated, or the array is made by another operation.
        ([f"%b = {UPDATE.format('z')}"], "%b"),
        (["%b = exp(%x) : f32[8]"], "%b"),
        # The earlier value, or an alias of it, is read or returned later.
        ([f"%b = {UPDATE.format('x')}", "%d = exp(%x) : f32[8]"], "%b"),
        ([VIEW, f"%b = {UPDATE.format('x')}", "%d = exp(%c) : f32[8]"], "%b"),
        ([BRANCH, f"%b = {UPDATE.format('x')}", "%d = exp(%c) : f32[8]"], "%b"),
        ([f"%b = {UPDATE.format('x')}"], "%b, %x"),
        ([VIEW, f"%b = {UPDATE.format('x')}"], "%b, %c"),
        # The value is also what is written into itself, or returned twice.
        (
            ["%b = dynamic_update_slice(%x, %x, %i) : f32[8]"],
            "%b",
        ),
        ([f"%b = {UPDATE.format('x')}"], "%b, %b"),
    ],
)
def test_other_values_share_no_buffer(lines: list[str], returns: str) -> None:
    assert chain_of(lines, returns=returns) is None
