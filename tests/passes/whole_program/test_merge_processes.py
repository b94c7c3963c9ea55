"""`merge-devices` for one of several processes: remaining collectives, and results."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings, strategies as st

from shardir import parse
from shardir.backends.cpu.pipeline import process_pipeline
from shardir.errors import MergeError
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, is_stable, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module, spmd_mesh_of
from shardir.ir.process_levels import ProcessLevels
from shardir.passes import Pipeline
from tests.passes.processes import (
    Array,
    block_shapes,
    on_devices,
    on_processes,
    partition_some,
    places,
    run_verified_passes,
)

EXAMPLES = 40 if settings().max_examples <= 200 else settings().max_examples
"""Each is compiled for all of its processes."""

LAYERS = """\
mesh @m = [data=4, model=2]

func @main(
  %x: f32[8@data, 3],
  %w1: f32[3, 4@model],
  %b: f32[4],
  %w2: f32[4@model, 5],
) -> (f32[5]) {
  %0 = dot(%x, %w1, dims="bi,ih->bh") : f32[8, 4]
  %1 = broadcast(%b, dims=[1]) : f32[8, 4]
  %2 = add(%0, %1) : f32[8, 4]
  %h = tanh(%2) : f32[8, 4]
  %y = dot(%h, %w2, dims="bh,ho->bo") : f32[8, 5]
  %z = sum(%y, dims=[0]) : f32[5]
  return %z
}
"""


def of_devices(text: str) -> Module:
    return Pipeline.parse("propagate,reshard,partition,cse,dce")(parse(text))


def same(program: Module, across: str, *, small: int = 0) -> Module:
    """Return the program of the first process, and check the results of all processes."""
    levels = ProcessLevels.parse(spmd_mesh_of(program), across)
    grouped = [
        run_verified_passes(process_pipeline(across, at, small), program) for at in places(levels)
    ]
    arguments = random_arguments(program, whole=True)
    want, got = on_devices(program, arguments), on_processes(program, grouped, across, arguments)
    for expected, made in zip(want, got, strict=True):
        assert are_close(expected, made, tolerance_of(program))
    return grouped[0]


def test_two_layers_on_two_processes() -> None:
    """The arrays of devices of one process are one array; one sum is between processes."""
    assert (
        str(same(of_devices(LAYERS), "data:2"))
        == """\
mesh @m = [data=2]

spmd func @main(
  %x: f32[4, 3] of f32[8@data, 3@-],
  %w1: f32[3, 4] of f32[3@-, 4@-],
  %b: f32[4] of f32[4@-],
  %w2: f32[4, 5] of f32[4@-, 5@-],
) -> (f32[5] of f32[5@-]) {
  %0 = dot(%x, %w1, dims="bi,ih->bh") : f32[4, 4]
  %h = fused(%0, %b) : f32[4, 4] {
    (%1: f32[4, 4], %b.1: f32[4]) =>
    %4 = broadcast(%b.1, dims=[1]) : f32[4, 4]
    %6 = add(%1, %4) : f32[4, 4]
    %h.1 = tanh(%6) : f32[4, 4]
    yield %h.1
  }
  %9 = reshape(%h) : f32[2, 2, 4]
  %5 = sum(%9, dims=[1]) : f32[2, 4]
  %7 = sum(%5, dims=[0]) : f32[4]
  %z.within_process = dot(%7, %w2, dims="h,ho->o") : f32[5]
  %z = all-reduce(%z.within_process, axes=[data], op=add) : f32[5]
  return %z
}
"""
    )


HALO = """\
mesh @m = [x=4]

spmd func @main(
  %x: f32[3] of f32[12@x],
) -> (f32[3] of f32[12@x]) {
  %before = collective-permute(%x, axes=[x], pairs=[[0, 1], [1, 2], [2, 3]]) : f32[3]
  return %before
}
"""


def test_only_boundary_rows_are_sent_between_processes() -> None:
    program = parse(HALO)
    same(program, "x:2")
    passes = "hierarchical-collectives{across=x:2},merge-devices{across=x:2},cse,dce,fold-views,dce"
    made = run_verified_passes(passes, program)
    assert [str(op.operands[0].type) for op in made.main.body.ops if op.spec.collective] == [
        "f32[1, 3]"
    ]


def test_rows_between_equal_processes_are_combined() -> None:
    shifted = "pairs=[[0, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7], [6, 0], [7, 1]]"
    text = HALO.replace("x=4", "x=8").replace("12@x", "24@x")
    program = parse(text.replace("pairs=[[0, 1], [1, 2], [2, 3]]", shifted))
    made = same(program, "x:2")
    sent = [op for op in made.main.body.ops if op.spec.collective]
    assert [op.attrs["pairs"] for op in sent] == [((0, 1), (1, 0))]
    assert sent[0].operands[0].type.shape == (2, 3)


def test_collectives_are_kept_on_all_participating_processes() -> None:
    """The second process sends a value that only the first process uses."""
    text = """\
mesh @m = [x=4]

spmd func @main(
  %x: f32[3] of f32[12@x],
) -> (f32[3] of f32[12@x]) {
  %i = axis-index(axes=[x]) : i32[]
  %two = constant(value=2) : i32[]
  %first = lt(%i, %two) : bool[]
  %all = broadcast(%first, dims=[]) : bool[3]
  %sum = all-reduce(%x, axes=[x], op=add) : f32[3]
  %y = select(%all, %sum, %x) : f32[3]
  return %y
}
"""
    program = parse(text)
    same(program, "x:2")
    grouped = [Pipeline.parse(process_pipeline("x:2", f"x:{i}", 0))(program) for i in range(2)]
    counts = [sum(op.spec.collective for op in made.main.body.ops) for made in grouped]
    assert counts == [1, 1]


def test_communication_of_zeros_is_kept() -> None:
    """The second process adds zeros, and the first process adds the values of its device."""
    text = """\
mesh @m = [x=2]

spmd func @main(
  %x: bool[1] of bool[2@x],
) -> (bool[1] of bool[1@-]) {
  %i = axis-index(axes=[x]) : i32[]
  %0 = constant(value=0) : i32[]
  %first = eq(%i, %0) : bool[]
  %all = broadcast(%first, dims=[]) : bool[1]
  %none = constant(value=0) : bool[1]
  %own = select(%all, %x, %none) : bool[1]
  %y = all-reduce(%own, axes=[x], op=add) : bool[1]
  return %y
}
"""
    program = parse(text)
    same(program, "x:2")
    second = Pipeline.parse(process_pipeline("x:2", "x:1", 0))(program)
    assert [op.name for op in second.main.body.ops] == ["constant", "all-reduce"]


@pytest.mark.parametrize(
    "window",
    [
        "dynamic_slice(%x, %i) : f32[4]",
        "dynamic_update_slice(%x, %update, %i) : f32[4]",
    ],
)
def test_collectives_of_windows_have_the_same_shape_in_all_processes(window: str) -> None:
    """The starts of both devices of the second process are clamped to the same number."""
    size = 4 if "update" in window else 6
    program = parse(
        f"""\
mesh @m = [x=4]

spmd func @main(
  %x: f32[{size}] of f32[{size}@-],
  %update: f32[2] of f32[2@-],
) -> (f32[4] of f32[16@x]) {{
  %i = axis-index(axes=[x]) : i32[]
  %w = {window}
  %y = all-reduce(%w, axes=[x:(1)2], op=add) : f32[4]
  return %y
}}
"""
    )
    same(program, "x:2")
    types = set()
    for at in ("x:0", "x:1"):
        made = Pipeline.parse(process_pipeline("x:2", at, 0))(program)
        types |= {op.result.type for op in made.main.body.ops if op.spec.collective}
    assert len(types) == 1


def test_unreduced_sums() -> None:
    text = """\
mesh @m = [x=4]

spmd func @main(
  %x: f32[3] of f32[3] unreduced(x),
) -> (f32[3] of f32[3] unreduced(x)) {
  return %x
}
"""
    with pytest.raises(
        MergeError, match=r"^a parameter or a result is unreduced between processes"
    ):
        Pipeline.parse("merge-devices{across=x:2}")(parse(text))


def test_hierarchical_collectives_run_before() -> None:
    text = HALO.replace(
        "collective-permute(%x, axes=[x], pairs=[[0, 1], [1, 2], [2, 3]])",
        "all-reduce(%x, axes=[x], op=add)",
    )
    with pytest.raises(MergeError) as caught:
        Pipeline.parse("merge-devices{across=x:2}")(parse(text))
    assert str(caught.value) == (
        "%before = all-reduce has axes inside of processes and between them; run "
        "hierarchical-collectives before"
    )


@settings(max_examples=EXAMPLES)
@given(partition_some(), st.data())
def test_results_of_processes_agree_with_results_of_devices(
    module: Module, data: st.DataObject
) -> None:
    across = data.draw(st.sampled_from([*block_shapes(spmd_mesh_of(module)), ""]))
    assume(across and all(op.spec.effect is False for op in module.main.body.walk()))
    small = data.draw(st.sampled_from([-1, 1 << 16]))
    levels = ProcessLevels.parse(spmd_mesh_of(module), across)
    arguments = random_arguments(module, whole=True)
    try:
        split = f"hierarchical-collectives{{across={across},small={small}}}"
        merged = f"{split},merge-devices{{across={across}}}"
        grouped = [run_verified_passes(merged, module)]
        placed = [
            run_verified_passes(process_pipeline(across, at, small), module)
            for at in places(levels)
        ]
    except MergeError:
        assume(False)
    want = on_devices(module, arguments)
    for each in (grouped, placed):
        got = on_processes(module, each, across, arguments)
        good = all(are_close(a, b, tolerance_of(module)) for a, b in zip(want, got, strict=True))
        assert good or not _is_stable(module, arguments)


def _is_stable(module: Module, arguments: Sequence[Array]) -> bool:
    return is_stable(module, arguments, run(module, arguments), tolerance_of(module))
