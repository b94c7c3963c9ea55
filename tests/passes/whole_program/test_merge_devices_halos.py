"""Convolutions sharded along rows: halo exchanges disappear from the merged program."""

from itertools import product

import numpy as np
import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from tests.passes.whole_program.merge_comparison import (
    merged,
    merged_difference,
    names,
    run_merged,
)
from tests.programs.near_misses import disagreements

FOLDING = "merge-devices,cse,dce,fold-reductions,fold-views,cse,dce"
UNEVEN = DEFAULT_PIPELINE.replace("leave_open=true", "leave_open=true,border=uneven")
CONVOLUTION = """\
mesh @m = [a=2, b=4]

func @main(
  %x: f32[4@a, ROWS@b, 5, 3],
  %w: f32[3, 3, 3, 2],
) -> (f32[4@a, OUT@b, 5, 2]) {
  %y = convolution(%x, %w, strides=[STRIDE, 1], padding=[PADDING, [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[DILATION, 1], dims="b01f,01io->b01f") : f32[4, OUT, 5, 2]
  return %y
}
"""
FILTER = """\
mesh @m = [a=2, b=4]

func @main(
  %x: f32[4@a, 8@b, 5, 3],
  %g: f32[4@a, 8@b, 5, 2],
) -> (f32[3, 3, 3, 2]) {
  %y = convolution(%x, %g, strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf") : f32[3, 3, 3, 2]
  return %y
}
"""


def merge_and_check(text: str, pipeline: str = DEFAULT_PIPELINE) -> Module:
    """Return one program for all devices, and check that it has their results."""
    program = Pipeline.parse(pipeline)(parse(text))
    one = merged(program, FOLDING)
    arguments = random_arguments(program, whole=True)
    want, got = run(program, arguments), run_merged(program, one, arguments)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return one


def test_shards_with_halos_become_the_global_array() -> None:
    text = CONVOLUTION.replace("ROWS", "8").replace("OUT", "8").replace("STRIDE", "1")
    one = merge_and_check(text.replace("PADDING", "[1, 1]").replace("DILATION", "1"))
    assert names(one.main) == ["convolution"]
    assert one.main.body.ops[0].attrs["padding"] == ((1, 1), (1, 1))


def test_partial_filter_gradients_become_one_convolution() -> None:
    one = merge_and_check(FILTER)
    assert names(one.main) == ["convolution"]
    assert one.main.body.ops[0].attrs["groups"] == 1
    assert one.main.body.ops[0].why.startswith("all-reduce %y along ")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("rows", "stride", "dilation", "low", "high"),
    list(product((8, 16, 11), (1, 2), (1, 2), (0, 1, 2), (0, 1))),
)
def test_strides_and_paddings(rows: int, stride: int, dilation: int, low: int, high: int) -> None:
    out = (rows + low + high - 2 * dilation - 1) // stride + 1
    text = CONVOLUTION.replace("ROWS", str(rows)).replace("OUT", str(out))
    text = text.replace("STRIDE", str(stride)).replace("DILATION", str(dilation))
    merge_and_check(text.replace("PADDING", f"[{low}, {high}]"), UNEVEN)


def test_halos_along_two_dimensions() -> None:
    text = CONVOLUTION.replace("ROWS", "8").replace("OUT", "8").replace("STRIDE", "1")
    text = text.replace("PADDING", "[1, 1]").replace("DILATION", "1")
    assert names(merge_and_check(_squares(text)).main) == ["convolution"]
    assert names(merge_and_check(_squares(FILTER)).main) == ["convolution"]


@pytest.mark.parametrize(
    ("text", "pipeline"),
    [
        (CONVOLUTION, DEFAULT_PIPELINE),
        (CONVOLUTION.replace("ROWS", "11").replace("OUT", "11"), UNEVEN),
        (FILTER, DEFAULT_PIPELINE),
    ],
)
def test_exchanges_that_resemble_halos_keep_their_results(text: str, pipeline: str) -> None:
    text = text.replace("ROWS", "8").replace("OUT", "8").replace("STRIDE", "1")
    text = text.replace("PADDING", "[1, 1]").replace("DILATION", "1")
    program = Pipeline.parse(pipeline)(parse(text))
    found = disagreements(program, FOLDING, merged_difference)
    assert not found, found[0]


def _squares(text: str) -> str:
    """Return the program with images sharded along columns too, instead of the batch."""
    text = text.replace("a=2", "a=3").replace("4@a", "4")
    return text.replace("8@b, 5,", "8@b, 9@a,").replace("[4, 8, 5,", "[4, 8, 9,")
