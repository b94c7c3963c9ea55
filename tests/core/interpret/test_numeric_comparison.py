"""Tolerances of results, and detection of ill-conditioned programs."""

import numpy as np

from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import (
    are_close,
    describe_largest_difference,
    is_stable,
    relative_distance,
    tolerance_of,
)
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.key_implementations import join_words
from shardir.ir.types import NUMPY_DTYPES
from shardir.text.parser import parse

TEXT = """\
func @f(
  %x: f32[4],
  %n: i32[4],
  %b: bool[4],
  %k: key[2],
) -> (f32[4]) {
  %w = convert(%x) : f64[4]
  return %x
}
"""


def test_arguments_are_the_same_for_the_same_seed() -> None:
    module = parse(TEXT)
    first, again, other = (random_arguments(module, seed, whole=True) for seed in (3, 3, 4))
    assert [x.dtype.name for x in first] == ["float32", "int32", "bool", "uint64"]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_narrowest_dtype_sets_the_tolerance() -> None:
    module = parse(TEXT)
    assert tolerance_of(module) == 2e-4
    assert tolerance_of(parse(TEXT.replace("f32", "bf16"))) == 1e-1
    assert tolerance_of(parse("func @f(\n  %n: i32[],\n) -> (i32[]) {\n  return %n\n}\n")) == 0


def test_distance_is_relative_to_the_largest_number() -> None:
    want = np.array([1000.0, 0.0, np.nan, np.inf], np.float32)
    assert relative_distance(want, want, 2e-4) == 0
    assert relative_distance(want, want + np.float32(0.1), 2e-4) < 1
    assert relative_distance(want, want + np.float32(1), 2e-4) > 1
    assert relative_distance(want, np.array([1000, 0, 1, np.inf], np.float32), 2e-4) == np.inf
    assert relative_distance(np.array([1, 2]), np.array([1, 3]), 2e-4) == np.inf
    assert are_close([want], [want], 0.0)


def test_keys_of_four_words_must_be_equal() -> None:
    words = np.arange(8, dtype=np.uint32).reshape(2, 4)
    changed = words.copy()
    changed[1, 2] = 0xFF
    want, got = (join_words(x, "key_rbg") for x in (words, changed))
    assert relative_distance(want, want.copy(), 0.0) == 0
    assert relative_distance(want, got, 1.0) == np.inf
    assert describe_largest_difference(want, got) == (
        "at [1], where the key of bytes 04000000050000000600000007000000 became "
        "0400000005000000ff00000007000000"
    )
    text = "func @f(\n  %k: key_rbg[2],\n) -> (key_rbg[2]) {\n  return %k\n}\n"
    assert is_stable(parse(text), [want], [want], 2e-4)


def test_an_ill_conditioned_program_is_not_stable() -> None:
    text = "func @f(\n  %x: f32[4],\n) -> (f32[4]) {{\n  %y = {}(%x) : f32[4]\n  return %y\n}}\n"
    for name, calm in (("exp", True), ("floor", False)):
        module = parse(text.format(name))
        arguments = [np.array([1, 2, 3, 4], np.float32)]
        assert is_stable(module, arguments, run(module, arguments), 2e-4) is calm


def test_signaling_nans_compare_equal_without_a_warning() -> None:
    signalling = np.array([0x7F81], np.uint16).view(NUMPY_DTYPES["bf16"])
    assert are_close([signalling], [signalling], 0.0)
