"""A sample of the programs of `python -m tests.passes.fuzz`, and regression tests of its
findings.
"""

import time

import pytest
from hypothesis import assume, given

from shardir.frontend.random_programs.reduction import smallest_failure
from shardir.ir.module import Module, Op
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE
from shardir.text.parser import parse
from tests.passes.fuzz import check, limit_seconds
from tests.passes.random_cases import UNEVEN, Case, cases


@given(cases())
def test_random_programs_shardings_meshes_and_pipelines(case: Case) -> None:
    assume(check(case))


FOUND = {
    "part of a pending sum stays pending": (SHARDY_PIPELINE, """\
mesh @m = [x=6]

func @main(
  %h: u32[] unreduced(x:(1)2),
) -> (u32[] unreduced(x)) {
  return %h
}
"""),
    "a single output feature of a filter that is cut": (
        DEFAULT_PIPELINE.replace("leave_open=true", "leave_open=true,border=uneven"), """\
mesh @m = [x=5]

func @main(
  %x: f16[1@-, 6@-, 1@x],
  %w: f16[1@-, 1@-, 1@x],
) -> (f16[1@-, 13@x, 1@-]) {
  %y = convolution(%x, %w, strides=[1], padding=[[1, 1]], lhs_dilation=[2], rhs_dilation=[1], \
dims="b0f,0io->b0f") : f16[1@x, 13@-, 1@-]
  return %y
}
"""),
    "what is cut does not stay pending": (SHARDY_PIPELINE, """\
mesh @m = [x=5]

func @main(
  %a: u8[],
  %i: i64[8@-, 3@-, 0@-] unreduced[mul](x),
  %u: u8[8, 3@x],
) -> (u8[]) {
  %s = scatter(%a, %i, %u, HOW) : u8[] unreduced[mul](x)
  return %s
}
""".replace("HOW", "update_window_dims=[], inserted_window_dims=[], scatter_dims=[], op=add")),
    "no sum is delayed past parts of an axis that fit no common split": (DEFAULT_PIPELINE, """\
mesh @m = [x=6]

func @main(
  %a: c64[3@x:(2)3, 1@-] unreduced(x:(1)2),
) -> (c64[3, 1]) {
  %0 = reshard(%a) : c64[3@-, 1@-] unreduced(x:(3)2)
  return %0
}
"""),
    "a dimension without positions takes no axes": (UNEVEN, """\
mesh @m = [x=8]

func @main(
  %a: i8[4, 0],
) -> (i8[4, 0]) {
  %h = concatenate(%a, dim=0) : i8[4@x:(1)2, 0@-]
  return %h
}
"""),
    "manual axes between free ones stay outside": (DEFAULT_PIPELINE, """\
mesh @m = [x=3, y=2]

func @main(
  %a: i8[4],
) -> (i8[4]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[]]], out_axes=[[[]]]) : i8[4@(y, x)] {
    (%p: i8[4]) =>
    %s = all-reduce(%p, axes=[x], op=add) : i8[4]
    yield %s
  }
  return %r
}
"""),
    "strides over a single position do not select it": (UNEVEN, """\
mesh @m = [x=4]

func @main(
  %a: key[5, 1@x:(2)2, 5],
) -> (key[1, 1, 2]) {
  %s = slice(%a, starts=[4, 0, 3], strides=[1, 2, 1]) : key[1, 1, 2]
  return %s
}
"""),
    "halves and thirds of an axis do not hide that devices agree": (UNEVEN, """\
mesh @m = [x=6]

func @main(
  %p: bool[] replicated(x:(1)2) unreduced[mul](x:(2)3),
  %a: f16[8, 8],
  %i: i32[],
  %w: f16[8@x:(1)3, 8@-],
) -> (i32[]) {
  %r, %s = case(%p) : f16[8@x?, 8@-], i32[] {
    yield %a, %i
  } {
    yield %w, %i
  }
  return %s
}
"""),
    "one reduction combines axes that stay unreduced": (SHARDY_PIPELINE, """\
mesh @m = [x=2, y=4]

func @main(
  %x: f32[1, 2, 1] unreduced[mul](x),
) -> (c64[1, 2, 1]) {
  %y = fft(%x, kind=rfft, rank=1) : c64[1, 2, 1] unreduced(x, y:(2)2)
  return %y
}
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_earlier_findings(name: str) -> None:
    pipeline, text = FOUND[name]
    assert check(Case(pipeline, parse(text)))


def test_a_long_computation_is_stopped() -> None:
    with (
        pytest.raises(TimeoutError, match=r"this took longer than 0\.01 seconds"),
        limit_seconds(0.01),
    ):
        time.sleep(10)


def test_a_program_is_reduced_to_the_failing_part() -> None:
    text = """\
mesh @m = [x=2]

func @main(
  %a: f32[4@x, 2],
  %b: f32[4, 2],
) -> (f32[4, 2], f32[4, 2@x]) {
  %c = exp(%a) : f32[4, 2]
  %d = add(%c, %b) : f32[4@x, 2]
  %e = neg(%d) : f32[4, 2]
  %f = sin(%e) : f32[4, 2]
  return %e, %f
}
"""

    def fails(module: Module) -> bool:
        def odd(op: Op) -> bool:
            return op.name == "add" and op.result.sharding is not None

        return any(map(odd, module.main.body.ops))

    assert str(smallest_failure(parse(text), fails)).splitlines()[2:] == [
        "func @main(",
        "  %b: f32[4, 2],",
        "  %c: f32[4, 2],",
        ") -> (f32[4, 2]) {",
        "  %d = add(%c, %b) : f32[4@x, 2]",
        "  return %d",
        "}",
    ]
