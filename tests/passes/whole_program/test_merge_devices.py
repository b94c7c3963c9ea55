"""`merge-devices`: text and results of the merged program of all devices."""

import numpy as np
import pytest
from hypothesis import assume, given, settings

from shardir import parse
from shardir.errors import MergeError
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.dtypes import FLOATS, NUMPY_DTYPES
from shardir.ir.module import Module
from shardir.passes import Pipeline
from tests.passes.merge_verification import compare_merged
from tests.passes.random_cases import Case, cases
from tests.passes.whole_program.merge_comparison import merged, run_merged


def same(program: Module, *, seed: int = 0) -> Module:
    """Return the merged program, and check that it has the results of the devices."""
    one = merged(program, "merge-devices,cse,dce")
    arguments = random_arguments(program, seed, whole=True)
    want, got = run(program, arguments), run_merged(program, one, arguments)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    return one


LAYERS = """\
mesh @m = [data=4, model=2]

func @main(
  %x: f32[8@data, 3],
  %w1: f32[3, 4@model],
  %b: f32[4],
  %w2: f32[4@model, 5],
) -> (f32[8@data, 5]) {
  %0 = dot(%x, %w1, dims="bi,ih->bh") : f32[8, 4]
  %1 = broadcast(%b, dims=[1]) : f32[8, 4]
  %2 = add(%0, %1) : f32[8, 4]
  %h = tanh(%2) : f32[8, 4]
  %y = dot(%h, %w2, dims="bh,ho->bo") : f32[8, 5]
  return %y
}
"""


def test_two_layers_on_eight_devices() -> None:
    program = Pipeline.parse("propagate,reshard,partition,cse,dce")(parse(LAYERS))
    made = str(same(program))
    assert (
        made
        == """\
func @main(
  %x: f32[8, 3],
  %w1: f32[3, 4],
  %b: f32[4],
  %w2: f32[4, 5],
) -> (f32[8, 5]) {
  %x.shards = reshape(%x) : f32[4, 2, 3]
  %4 = reshape(%w1) : f32[3, 2, 2]
  %w1.shards = transpose(%4, perm=[1, 0, 2]) : f32[2, 3, 2]
  %b.shards = reshape(%b) : f32[2, 2]
  %w2.shards = reshape(%w2) : f32[2, 2, 5]
  %0 = dot(%x.shards, %w1.shards, dims="abi,cih->acbh") : f32[4, 2, 2, 2]
  %1 = broadcast(%b.shards, dims=[0, 2]) : f32[2, 2, 2]
  %10 = broadcast(%1, dims=[1, 2, 3]) : f32[4, 2, 2, 2]
  %2 = add(%0, %10) : f32[4, 2, 2, 2]
  %h = tanh(%2) : f32[4, 2, 2, 2]
  %y.partial = dot(%h, %w2.shards, dims="acbh,cho->acbo") : f32[4, 2, 2, 5]
  %y = sum(%y.partial, dims=[1]) : f32[4, 2, 5]
  %y.unsharded = reshape(%y) : f32[8, 5]
  return %y.unsharded
}
"""
    )


COLLECTIVES = {
    "all-reduce of what differs along one of two axes": """\
  %y = all-reduce(%x, axes=[a, b], op=add) : f32[2, 3]
  %0 = all-gather(%y, dim=0, axes=[a]) : f32[8, 3]
  %z = all-slice(%0, dim=0, axes=[a]) : f32[2, 3]""",
    "the largest of equals": """\
  %z = all-reduce(%x, axes=[b], op=max) : f32[2, 3]""",
    "gather along both": """\
  %0 = all-gather(%x, dim=0, axes=[b, a]) : f32[24, 3]
  %z = reduce-scatter(%0, dim=0, axes=[b, a], op=add) : f32[2, 3]""",
    "scatter along a part": """\
  %0 = all-gather(%x, dim=1, axes=[a:(1)2]) : f32[2, 6]
  %z = reduce-scatter(%0, dim=1, axes=[a:(1)2], op=mul) : f32[2, 3]""",
    "exchange": """\
  %0 = all-gather(%x, dim=0, axes=[b]) : f32[6, 3]
  %1 = all-to-all(%0, split=0, concat=1, axes=[b]) : f32[2, 9]
  %z = all-to-all(%1, split=1, concat=0, axes=[b]) : f32[6, 3]""",
    "a slice of one's own": """\
  %0 = all-gather(%x, dim=0, axes=[b]) : f32[6, 3]
  %1 = axis-index(axes=[b]) : i32[]
  %2 = convert(%1) : f32[]
  %3 = broadcast(%2, dims=[]) : f32[6, 3]
  %4 = add(%0, %3) : f32[6, 3]
  %z = all-slice(%4, dim=0, axes=[b]) : f32[2, 3]""",
    "positions along two": """\
  %1 = axis-index(axes=[b, a]) : i32[]
  %2 = convert(%1) : f32[]
  %3 = broadcast(%2, dims=[]) : f32[2, 3]
  %z = add(%x, %3) : f32[2, 3]""",
    "from one axis to parts of another": """\
  %z = collective-permute(%x, source=[a:(1)2], target=[a:(2)2]) : f32[2, 3]""",
    "a ring of two axes": """\
  %z = collective-permute(%x, axes=[a, b], pairs=[RING]) : f32[2, 3]""",
    "half of the devices get nothing": """\
  %z = collective-permute(%x, axes=[a], pairs=[[0, 1], [1, 3]]) : f32[2, 3]""",
    "neighbours swap": """\
  %z = collective-permute(%x, axes=[a], pairs=[[0, 1], [1, 0], [2, 3], [3, 2]]) : f32[2, 3]""",
    "rows at a place of one's own": """\
  %i = axis-index(axes=[a]) : i32[]
  %o = constant(value=0) : i32[]
  %0 = all-gather(%x, dim=0, axes=[a]) : f32[8, 3]
  %two = constant(value=2) : i32[]
  %s = mul(%i, %two) : i32[]
  %z = dynamic_slice(%0, %s, %o) : f32[2, 3]""",
    "written at a place of one's own": """\
  %i = axis-index(axes=[a]) : i32[]
  %o = constant(value=0) : i32[]
  %0 = all-gather(%x, dim=0, axes=[a]) : f32[8, 3]
  %1 = slice(%x, starts=[1, 0], strides=[1, 1]) : f32[1, 3]
  %two = constant(value=2) : i32[]
  %s = mul(%i, %two) : i32[]
  %z = dynamic_update_slice(%0, %1, %s, %o) : f32[8, 3]""",
}
RING = ", ".join(f"[{i}, {(i + 5) % 12}]" for i in range(12))
PER_DEVICE = """\
mesh @m = [a=4, b=3]

spmd func @main(
  %x: f32[2, 3] of f32[8@a, 3],
) -> (RESULT) {
OPS
  return %z
}
"""


@pytest.mark.parametrize("ops", COLLECTIVES.values(), ids=COLLECTIVES)
def test_collectives(ops: str) -> None:
    shape = ops.rpartition("f32")[2][1:-1].split(", ")
    sharding = f"{int(shape[0]) * 12}@(a, b), {shape[1]}"
    result = f"f32[{', '.join(shape)}] of f32[{sharding}]"
    same(parse(PER_DEVICE.replace("RESULT", result).replace("OPS", ops.replace("RING", RING))))


@settings(max_examples=max(settings().max_examples // 4, 25))
@given(cases())
def test_random_programs_on_random_meshes(case: Case) -> None:
    assume(compare_merged(case, "merge-devices"))


LOOPS = """\
mesh @m = [a=4, b=3]

spmd func @main(
  %x: f32[2] of f32[24@(a, b)],
) -> (f32[2] of f32[24@(a, b)], f32[] of f32[]) {
  %i = axis-index(axes=[a]) : i32[]
  %largest = max(%x, dims=[0]) : f32[]
  %y, %n = while(%x, %largest) : f32[2], f32[] {
    (%c: f32[2], %m: f32[]) =>
    %ten = constant(value=10.0) : f32[]
    %s = sum(%c, dims=[0]) : f32[]
    %more = lt(%s, %ten) : bool[]
    yield %more
  } {
    (%d: f32[2], %o: f32[]) =>
    %one = constant(value=3.0) : f32[2]
    %e = add(%d, %one) : f32[2]
    yield %e, %o
  }
  %z = case(%i) : f32[2] {
    yield %y
  } {
    %f = neg(%y) : f32[2]
    yield %f
  }
  %w, %ys = scan(%z, %x, carries=1, length=2) : f32[2], f32[2, 2] {
    (%g: f32[2], %h: f32[]) =>
    %k = broadcast(%h, dims=[]) : f32[2]
    %l = add(%g, %k) : f32[2]
    yield %l, %g
  }
  %all = sum(%ys, dims=[0, 1]) : f32[]
  %t = all-reduce(%all, axes=[a, b], op=add) : f32[]
  return %w, %t
}
"""


def test_divergent_loops_and_branches() -> None:
    made = same(parse(LOOPS))
    assert [op.name for op in made.main.body.ops if op.blocks] == ["while", "scan"]


def test_merged_operations_state_their_collective() -> None:
    program = Pipeline.parse("propagate,reshard,partition,cse,dce")(parse(LAYERS))
    one = merged(program)
    assert {op.name: op.why for op in one.main.body.ops if "along" in op.why} == {
        "sum": "all-reduce %y along model: sum over 'h' of %y = dot"
    }
    folded = merged(program, "merge-devices,cse,dce,fold-reductions,fold-views,cse,dce")
    assert [op.why for op in folded.main.body.ops if op.name == "dot"] == [
        "", "all-reduce %y along model: sum over 'h' of %y = dot"
    ]  # fmt: skip


def test_the_merged_form_of_each_collective() -> None:
    program = parse(PER_DEVICE.replace("RESULT", "f32[8, 3] of f32[24@b, 3]").replace("OPS", """\
  %0 = all-gather(%x, dim=0, axes=[a]) : f32[8, 3]
  %1 = all-reduce(%0, axes=[b], op=add) : f32[8, 3]
  %2 = collective-permute(%1, axes=[b], pairs=[[0, 1], [1, 2]]) : f32[8, 3]
  %z = add(%0, %2) : f32[8, 3]"""))  # fmt: skip
    one = merged(program, "merge-devices,cse,dce,fold-reductions,fold-views,cse,dce")
    views = ("reshape", "transpose", "broadcast", "constant")
    assert [(op.name, op.why) for op in one.main.body.ops if op.why and op.name not in views] == [
        ("sum", "all-reduce %1 along b"),
        ("slice", "collective-permute %2 along b"),
        ("concatenate", "collective-permute %2 along b"),
    ]


@pytest.mark.parametrize("dtype", ["i2", "i4", "u2", "f4e2m1fn", "f8e3m4", "f16", "i8"])
def test_a_sum_of_equal_values_of_devices(dtype: str) -> None:
    """The number of devices may be no number of the dtype."""
    program = parse(f"""\
mesh @m = [a=16]

spmd func @main(%x: {dtype}[2] of {dtype}[2]) -> ({dtype}[2] of {dtype}[2]) {{
  %y = all-reduce(%x, axes=[a], op=add) : {dtype}[2]
  return %y
}}
""")
    one = merged(program)
    arguments = [np.array([0.5 if dtype in FLOATS else 1, 0]).astype(NUMPY_DTYPES[dtype])]
    (want,), (got,) = run(program, arguments), run_merged(program, one, arguments)
    assert got.tobytes() == want.tobytes(), (got, want)


REFUSED = """\
mesh @m = [a=6]

spmd func @main(
  %x: f32[2] of f32[12@a],
) -> (f32[2] of f32[12@a]) {
OPS
  return %y
}
"""


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        (
            "  %0 = all-reduce(%x, axes=[a:(1)2], op=add) : f32[2]\n"
            "  %y = all-reduce(%0, axes=[a:(1)3], op=add) : f32[2]",
            "the program uses parts of axis 'a' without a common refinement",
        ),
        (
            '  %y = opaque(%x, operation="x.y", head="x.y %", attributes="", types="") : f32[2]',
            "%y = opaque has a side effect on each device; run the program without the pass "
            "merge-devices",
        ),
    ],
)
def test_programs_that_cannot_be_merged_are_errors(ops: str, message: str) -> None:
    with pytest.raises(MergeError) as caught:
        merged(parse(REFUSED.replace("OPS", ops)))
    assert str(caught.value) == message


def test_programs_of_one_device_are_not_changed() -> None:
    module = parse(LAYERS)
    assert str(Pipeline.parse("merge-devices")(module)) == str(module)


CALLS = """\
mesh @m = [a=4]

spmd func @main(
  %x: f32[2, 3] of f32[8@a, 3],
  %w: f32[3] of f32[3],
) -> (f32[2, 3] of f32[8@a, 3], f32[3] of f32[3]) {
  %y = pure-callback(%x, %w, function="f", method=METHOD) : f32[2, 3]
  %z = pure-callback(%w, function="f", method=METHOD) : f32[3]
  return %y, %z
}
"""


@pytest.mark.parametrize("method", ["none", "expand_dims", "broadcast_all", "legacy_vectorized"])
def test_a_callback_executes_once_per_device(method: str) -> None:
    """The vmap method of the callback does not apply, because devices are no batch."""
    program = parse(CALLS.replace("METHOD", f'"{method}"'))
    assert (
        str(merged(program, "merge-devices,cse,dce"))
        == f"""\
func @main(
  %x: f32[8, 3],
  %w: f32[3],
) -> (f32[8, 3], f32[3]) {{
  %x.shards = reshape(%x) : f32[4, 2, 3]
  %1 = broadcast(%w, dims=[1]) : f32[4, 3]
  %y = pure-callback(%x.shards, %1, function="f", method="{method}", batch=1) : f32[4, 2, 3]
  %z = pure-callback(%w, function="f", method="{method}") : f32[3]
  %y.unsharded = reshape(%y) : f32[8, 3]
  return %y.unsharded, %z
}}
"""
    )


def test_a_callback_on_some_devices_is_not_merged() -> None:
    program = parse(
        """\
mesh @m = [a=4]

spmd func @main(
  %x: f32[2] of f32[8@a],
  %p: bool[1] of bool[4@a],
) -> (f32[2] of f32[8@a]) {
  %0 = reshape(%p) : bool[]
  %y = case(%0) : f32[2] {
    yield %x
  } {
    %c = pure-callback(%x, function="f", method="none") : f32[2]
    yield %c
  }
  return %y
}
"""
    )
    with pytest.raises(MergeError) as caught:
        merged(program, "merge-devices")
    assert "%c = pure-callback is called on only some of the devices" in str(caught.value)
