"""`hierarchical-collectives`: collectives inside of processes and between them replace one."""

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from shardir import parse
from shardir.errors import InterpretError, MergeError, PipelineError
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module, spmd_mesh_of
from shardir.passes import Pipeline
from tests.passes.processes import block_shapes, on_devices, run_verified_passes
from tests.programs.strategies import spmd_modules

HEAD = """\
mesh @m = [data=4, model=2]

spmd func @f(
  %x: f32[8, 16] of f32[32@data, 32@model],
  %h: bf16[8] of bf16[64@(data, model)],
) -> (f32[8, 16] of f32[32@data, 32@model]) {
"""
END = """\
  return %x
}
"""


def split(line: str, options: str = "small=0") -> str:
    """Return the operations after the pass, where two processes have two of the four rows of
    devices.
    """
    made = run_verified_passes(
        f"hierarchical-collectives{{across=data:2,{options}}}", parse(f"{HEAD}  {line}\n{END}")
    )
    lines = str(made).removeprefix(HEAD).removesuffix(END).splitlines()
    return "\n".join(text.removeprefix("  ") for text in lines)


def test_all_reduces_start_inside_of_processes() -> None:
    assert split("%y = all-reduce(%x, axes=[data, model], op=add) : f32[8, 16]") == (
        "%y.within_process = all-reduce(%x, axes=[data:(2)2, model], op=add) : f32[8, 16]\n"
        "%y = all-reduce(%y.within_process, axes=[data:(1)2], op=add) : f32[8, 16]"
    )


def test_small_sums_keep_the_order_of_devices() -> None:
    line = "%y = all-reduce(%x, axes=[data, model], op=add) : f32[8, 16]"
    want = (
        "%x.row = reshape(%x) : f32[1, 8, 16]\n"
        "%y.within_process = all-gather(%x.row, dim=0, axes=[data:(2)2, model]) : f32[4, 8, 16]\n"
        "%y.between_processes = all-gather(%y.within_process, dim=0, axes=[data:(1)2]) : "
        "f32[8, 8, 16]\n"
        "%y = sum(%y.between_processes, dims=[0]) : f32[8, 16]"
    )
    assert split(line, "small=2048") == want
    assert split(line, "small=2047") != want


def test_maxima_do_not_depend_on_the_order() -> None:
    assert split("%y = all-reduce(%x, axes=[data], op=max) : f32[8, 16]", "small=99999") == (
        "%y.within_process = all-reduce(%x, axes=[data:(2)2], op=max) : f32[8, 16]\n"
        "%y = all-reduce(%y.within_process, axes=[data:(1)2], op=max) : f32[8, 16]"
    )


def test_maxima_of_16_bit_floats_are_not_converted() -> None:
    assert split("%y = all-reduce(%h, axes=[data], op=max) : bf16[8]") == (
        "%y.within_process = all-reduce(%h, axes=[data:(2)2], op=max) : bf16[8]\n"
        "%y = all-reduce(%y.within_process, axes=[data:(1)2], op=max) : bf16[8]"
    )


def test_sums_of_16_bit_floats_are_rounded_once() -> None:
    assert split("%y = all-reduce(%h, axes=[data], op=add) : bf16[8]") == (
        "%h.wide = convert(%h) : f32[8]\n"
        "%y.within_process = all-reduce(%h.wide, axes=[data:(2)2], op=add) : f32[8]\n"
        "%y.between_processes = all-reduce(%y.within_process, axes=[data:(1)2], op=add) : f32[8]\n"
        "%y = convert(%y.between_processes) : bf16[8]"
    )


def test_scattered_values_are_sent_once() -> None:
    assert split("%y = reduce-scatter(%x, dim=0, axes=[data], op=add) : f32[2, 16]") == (
        "%y.within_process = all-reduce(%x, axes=[data:(2)2], op=add) : f32[8, 16]\n"
        "%y.between_processes = reduce-scatter(%y.within_process, dim=0, axes=[data:(1)2], "
        "op=add) : f32[4, 16]\n"
        "%y = all-slice(%y.between_processes, dim=0, axes=[data:(2)2]) : f32[2, 16]"
    )


def test_gathers_start_at_the_minor_axes() -> None:
    assert split("%y = all-gather(%x, dim=1, axes=[model, data]) : f32[8, 128]") == (
        "%y.within_process = all-gather(%x, dim=1, axes=[data:(2)2]) : f32[8, 32]\n"
        "%y.between_processes = all-gather(%y.within_process, dim=1, axes=[data:(1)2]) : "
        "f32[8, 64]\n"
        "%y = all-gather(%y.between_processes, dim=1, axes=[model]) : f32[8, 128]"
    )


def test_an_all_to_all_is_split_into_one_per_level() -> None:
    assert split("%y = all-to-all(%x, split=1, concat=0, axes=[data]) : f32[32, 4]") == (
        "%x.parts = reshape(%x) : f32[1, 1, 8, 2, 2, 4]\n"
        "%y.between_processes = all-to-all(%x.parts, split=3, concat=0, axes=[data:(1)2]) : "
        "f32[2, 1, 8, 1, 2, 4]\n"
        "%y.within_process = all-to-all(%y.between_processes, split=4, concat=1, "
        "axes=[data:(2)2]) : f32[2, 2, 8, 1, 1, 4]\n"
        "%y = reshape(%y.within_process) : f32[32, 4]"
    )


def test_permutes_that_rename_axes_become_pairs() -> None:
    line = "%y = collective-permute(%x, source=[data, model], target=[model, data]) : f32[8, 16]"
    assert split(line) == (
        "%y = collective-permute(%x, axes=[data, model], pairs=[[0, 0], [1, 2], [2, 4], [3, 6], "
        "[4, 1], [5, 3], [6, 5], [7, 7]]) : f32[8, 16]"
    )


def test_permutes_between_parts_of_axes_become_pairs_along_these_parts() -> None:
    line = "%y = collective-permute(%x, source=[data:(1)2, model], target=[model, data:(1)2])"
    assert split(f"{line} : f32[8, 16]") == (
        "%y = collective-permute(%x, axes=[data:(1)2, model], pairs=[[0, 0], [1, 2], [2, 1], "
        "[3, 3]]) : f32[8, 16]"
    )


def test_permutes_between_parts_that_overlap_become_pairs_along_complete_axes() -> None:
    text = """\
mesh @m = [x=8, y=2]

spmd func @f(
  %x: f32[2] of f32[32@(x, y)],
) -> (f32[2] of f32[32@(x, y)]) {
  %y = collective-permute(%x, source=[x:(1)4, y], target=[x:(2)4, y]) : f32[2]
  return %y
}
"""
    before = parse(text)
    after = run_verified_passes("hierarchical-collectives{across=y:2}", before)
    assert "%y = collective-permute(%x, axes=[x, y], pairs=[[0, 0], [1, 1], [2, 8], " in str(after)
    arguments = random_arguments(before, whole=True)
    np.testing.assert_array_equal(on_devices(before, arguments), on_devices(after, arguments))


def test_a_process_program_has_constant_device_coordinates() -> None:
    line = "%i = axis-index(axes=[data, model]) : i32[]"
    assert split(line, "at=data:1") == (
        "%i.within_process = axis-index(axes=[data:(2)2, model]) : i32[]\n"
        "%0 = constant(value=4) : i32[]\n"
        "%i = add(%i.within_process, %0) : i32[]"
    )
    line = "%y = all-slice(%x, dim=1, axes=[data, model]) : f32[8, 2]"
    assert split(line, "at=data:1") == (
        "%0 = slice(%x, starts=[0, 8], strides=[1, 1]) : f32[8, 8]\n"
        "%y = all-slice(%0, dim=1, axes=[data:(2)2, model]) : f32[8, 2]"
    )


def test_start_and_end_apply_to_collectives_between_processes() -> None:
    assert split(
        "%s = all-reduce-start(%x, axes=[data], op=add) : f32[8, 16]\n"
        "  %y = done(%s) : f32[8, 16]\n"
        "  %t = all-gather-start(%x, dim=0, axes=[model, data]) : f32[64, 16]\n"
        "  %z = done(%t) : f32[64, 16]"
    ) == (
        "%s.within_process = all-reduce(%x, axes=[data:(2)2], op=add) : f32[8, 16]\n"
        "%s = all-reduce-start(%s.within_process, axes=[data:(1)2], op=add) : f32[8, 16]\n"
        "%y = done(%s) : f32[8, 16]\n"
        "%t.within_process = all-gather(%x, dim=0, axes=[data:(2)2]) : f32[16, 16]\n"
        "%t.between_processes = all-gather(%t.within_process, dim=0, axes=[data:(1)2]) : "
        "f32[32, 16]\n"
        "%t = all-gather(%t.between_processes, dim=0, axes=[model]) : f32[64, 16]"
    )


def test_collectives_on_one_level_are_not_changed() -> None:
    line = "%y = all-reduce(%x, axes=[model], op=add) : f32[8, 16]"
    assert split(line) == line
    line = "%y = all-gather(%x, dim=0, axes=[data:(1)2]) : f32[16, 16]"
    assert split(line) == line
    line = "%y = all-reduce(%x, axes=[data:(1)2], op=max) : f32[8, 16]"
    assert split(line) == line


def test_operations_that_send_nothing_are_not_changed() -> None:
    line = "%y = vary(%x, axes=[data, model]) : f32[8, 16]"
    assert split(line) == line


def test_a_started_collective_that_ends_with_a_slice_is_complete() -> None:
    assert split(
        "%s = reduce-scatter-start(%x, dim=0, axes=[model, data:(1)2], op=add) : f32[2, 16]\n"
        "  %y = done(%s) : f32[2, 16]",
        "small=99999",
    ).splitlines()[-2:] == [
        "%s.all.shard = all-slice(%s.all, dim=0, axes=[model]) : f32[4, 16]",
        "%s = all-slice(%s.all.shard, dim=0, axes=[data:(1)2]) : f32[2, 16]",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "across=rows:2",
            "'rows:2' is not a valid split of a mesh axis; write AXIS:BLOCKS, where the "
            "blocks divide the axis, once for each axis, such as data:2/model:1; the axes are "
            "data:4, model:2",
        ),
        (
            "across=data:3",
            "'data:3' is not a valid split of a mesh axis; write AXIS:BLOCKS, where the "
            "blocks divide the axis, once for each axis, such as data:2/model:1; the axes are "
            "data:4, model:2",
        ),
        (
            "across=data:2/data:4",
            "'data:4' is not a valid split of a mesh axis; write AXIS:BLOCKS, where the "
            "blocks divide the axis, once for each axis, such as data:2/model:1; the axes are "
            "data:4, model:2",
        ),
        (
            "across=data:2,at=rows:0",
            "'rows:0' is not a block position; write AXIS:NUMBER, counted from 0, such as data:1; "
            "the blocks are data:2",
        ),
        (
            "across=data:2,at=data:2",
            "'data:2' is not a block position; write AXIS:NUMBER, counted from 0, such as data:1; "
            "the blocks are data:2",
        ),
    ],
)
def test_invalid_blocks_are_errors(options: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline.parse(f"hierarchical-collectives{{{options}}}")(parse(f"{HEAD}{END}"))
    assert str(caught.value) == message


def test_sub_axes_that_blocks_divide_are_errors() -> None:
    text = """\
mesh @m = [x=12]

spmd func @f(
  %x: f32[8] of f32[96@x],
) -> (f32[8] of f32[32@x:(3)4]) {
  %y = all-reduce(%x, axes=[x:(1)3], op=add) : f32[8]
  return %y
}
"""
    with pytest.raises(MergeError, match=r"^x:\(1\)3 is neither inside of processes nor between"):
        Pipeline.parse("hierarchical-collectives{across=x:2}")(parse(text))


@given(spmd_modules(), st.data())
def test_results_are_equal(module: Module, data: st.DataObject) -> None:
    across = data.draw(st.sampled_from([*block_shapes(spmd_mesh_of(module)), ""]))
    assume(across)
    small = data.draw(st.sampled_from([-1, 1 << 16]))
    arguments = random_arguments(module, whole=True)
    try:
        want = on_devices(module, arguments)
    except InterpretError:
        assume(False)
    try:
        made = run_verified_passes(
            f"hierarchical-collectives{{across={across},small={small}}}", module
        )
    except MergeError:
        assume(False)
    for expected, got in zip(want, on_devices(made, arguments), strict=True):
        assert are_close(expected, got, tolerance_of(module))
        assert [x.dtype for x in expected] == [np.asarray(x).dtype for x in got]


def test_values_that_complete_immediately_in_loops() -> None:
    assert split(
        "%s = all-gather-start(%x, dim=0, axes=[model, data]) : f32[64, 16]\n"
        "  %z = done(%s) : f32[64, 16]\n"
        "  %n = constant(value=0.0) : f32[64, 16]\n"
        "  %w = scan(%n, length=2, carries=1) : f32[64, 16] {\n"
        "    (%c: f32[64, 16]) =>\n"
        "    %e = add(%c, %z) : f32[64, 16]\n"
        "    yield %e\n"
        "  }"
    ).endswith("  %e = add(%c, %s) : f32[64, 16]\n  yield %e\n}")


def test_positions_have_a_part_for_each_level() -> None:
    assert split("%y = axis-index(axes=[data]) : i32[]").splitlines()[:2] == [
        "%y.within_process = axis-index(axes=[data:(2)2]) : i32[]",
        "%y.between_processes = axis-index(axes=[data:(1)2]) : i32[]",
    ]
    for axes in ("data:(1)2", "data:(2)2", "model"):
        line = f"%y = axis-index(axes=[{axes}]) : i32[]"
        assert split(line) == line
    for place in (0, 1):
        line = "%y = axis-index(axes=[data:(1)2]) : i32[]"
        assert split(line, f"at=data:{place}") == f"%y = constant(value={place}) : i32[]"
        line = "%y = axis-index(axes=[data:(2)2]) : i32[]"
        assert split(line, f"at=data:{place}") == line


def test_a_global_program_stays() -> None:
    module = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  %y = exp(%x) : f32[4]\n  return %y\n}\n")
    made = Pipeline.parse("hierarchical-collectives{across=data:2}")(module)
    assert made.main is module.main


def test_slices_are_taken_on_each_level() -> None:
    assert split("%y = all-slice(%x, dim=1, axes=[data, model]) : f32[8, 2]") == (
        "%x.shard = all-slice(%x, dim=1, axes=[data:(1)2]) : f32[8, 8]\n"
        "%y = all-slice(%x.shard, dim=1, axes=[data:(2)2, model]) : f32[8, 2]"
    )


def test_sums_of_integers_have_no_order() -> None:
    integers = "%i = convert(%x) : i32[8, 16]\n"
    line = "%y = all-reduce(%i, axes=[data], op=add) : i32[8, 16]"
    assert split(f"{integers}  {line}", "small=99999") == (
        f"{integers}%y.within_process = all-reduce(%i, axes=[data:(2)2], op=add) : i32[8, 16]\n"
        "%y = all-reduce(%y.within_process, axes=[data:(1)2], op=add) : i32[8, 16]"
    )
