"""Text with `for_xla`, which has the same meaning in XLA."""

from typing import Any

import numpy as np
import pytest

from shardir.interpret.interpreter import run
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from tests.op_sample import Sample
from tests.samples import SAMPLES

SCATTERS = [sample for sample in SAMPLES if sample.spec.name == "scatter"]
PARTLY_OUT_OF_BOUNDS = """\
func @f(
  %x: f32[4, 6],
  %at: {dtype}[3, 2],
  %u: f32[2, 3, 5],
) -> (f32[4, 6]) {{
  %y = scatter(%x, %at, %u, op=add, update_window_dims=[0, 2], inserted_window_dims=[], \
scatter_dims=[1, 0]) : f32[4, 6]
  return %y
}}
"""


@pytest.mark.parametrize("sample", SCATTERS, ids=lambda sample: sample.id)
def test_scatters_compute_the_same(sample: Sample) -> None:
    module = sample.module()
    again = read(show(module, for_xla=True))
    for got, want in zip(run(again, sample.arrays()), run(module, sample.arrays()), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "u32", "i64", "u64"])
def test_each_element_of_a_window_has_an_index(dtype: str) -> None:
    module = parse(PARTLY_OUT_OF_BOUNDS.format(dtype=dtype))
    text = show(module, for_xla=True)
    assert "update_window_dims = [], inserted_window_dims = [0, 1]" in text

    numpy = module.main.body.params[1].type.numpy
    largest = np.iinfo(numpy).max
    at = np.array([[4, 3], [0, 1], [largest, largest]], numpy)
    args: list[Any] = [np.ones((4, 6), "f4"), at, np.arange(30, dtype="f4").reshape(2, 3, 5)]
    np.testing.assert_array_equal(run(read(text), args)[0], run(module, args)[0])


def test_an_empty_index_becomes_an_index_of_0() -> None:
    module = parse("""\
func @f(
  %x: f32[],
  %at: i32[3, 0],
  %u: f32[3],
) -> (f32[]) {
  %y = scatter(%x, %at, %u, op=add, update_window_dims=[], inserted_window_dims=[], \
scatter_dims=[]) : f32[]
  return %y
}
""")
    text = show(module, for_xla=True)
    assert "scatter_dims_to_operand_dims = [0]" in text
    args: list[Any] = [np.float32(1), np.zeros((3, 0), "i4"), np.arange(3, dtype="f4")]
    assert run(read(text), args)[0] == run(module, args)[0] == 4


PRODUCT = """\
func @f(
  %x: f32[2, 2],
) -> (f32[2, 2]) {
  %y = dot(%x, %x, dims="ab,bc->ac") : f32[2, 2]
  return %y
}
"""


def test_products_have_full_precision() -> None:
    module, full = parse(PRODUCT), "precision_config = [#stablehlo<precision HIGHEST>, "
    assert full in show(module, for_xla=True)
    assert full not in show(module)
    assert str(read(show(module, for_xla=True))) == PRODUCT


def test_parameters_state_the_results_that_may_overwrite_them() -> None:
    text = show(parse(PRODUCT), overwritten={0: 0})
    assert "%x: tensor<2x2xf32> {tf.aliasing_output = 0 : i32}" in text


@pytest.mark.parametrize(("name", "number"), [("log2", 0), ("exp2", complex("inf"))])
def test_powers_of_two_of_complex_numbers_scale_both_parts(name: str, number: complex) -> None:
    module = parse(f"""\
func @f(
  %x: c64[2],
) -> (c64[2]) {{
  %y = {name}(%x) : c64[2]
  return %y
}}
""")
    args = [np.array([number, 1 + 2j], "c8")]
    (found,), (expected,) = run(read(show(module)), args), run(module, args)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_words_of_keys_are_exchanged_without_reverse() -> None:
    """IREE cannot compile `reverse` of unsigned integers."""
    module = parse("""\
func @f(%x: u32[2, 2]) -> (key[2], u32[2, 2]) {
  %k = bitcast(%x) : key[2]
  %y = bitcast(%k) : u32[2, 2]
  return %k, %y
}
""")
    words = np.array([[1, 2], [0xFFFFFFFF, 7]], np.uint32)
    text = show(module, for_xla=True)
    assert "stablehlo.reverse" not in text
    keys, same = run(read(text), [words])
    np.testing.assert_array_equal(keys, [(1 << 32) + 2, (0xFFFFFFFF << 32) + 7])
    np.testing.assert_array_equal(same, words)
