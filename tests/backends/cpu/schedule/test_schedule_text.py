"""The text of compiled programs: stages, schedule and memory."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.schedule.build import compile_schedule
from shardir.backends.cpu.schedule.items import Segment
from shardir.backends.cpu.schedule.schedule_text import describe_schedule
from shardir.errors import PipelineError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.cpu.schedule.test_shadow_memory import prepare_for_scheduling

FUSED = """\
func @layer(
  %x: f32[8, 16],
  %w: f32[16, 4],
) -> (f32[8, 4], f32[16, 8]) {
  %0 = dot(%x, %w, dims="bi,ih->bh") : f32[8, 4]
  %y = fused(%0) : f32[8, 4] {
    (%1: f32[8, 4]) =>
    %2 = constant(value=0.0) : f32[8, 4]
    %y.1 = maximum(%1, %2) : f32[8, 4]
    yield %y.1
  }
  %6 = transpose(%x, perm=[1, 0]) : f32[16, 8]
  return %y, %6
}
"""


def layer(x: Any, w: Any) -> tuple[Any, Any]:
    y = snp.maximum(x @ w, 0)
    return y, x.T


def compile_layer() -> Any:
    mesh = sd.make_mesh((4, 2), ("data", "model"))
    x = sd.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("data", "model")))
    w = sd.device_put(np.ones((16, 4), np.float32), NamedSharding(mesh, P("model")))
    return sd.jit(layer).lower(x, w).compile()


def test_devices_with_shared_memory_run_one_merged_program() -> None:
    assert compile_layer().as_text("fuse") == FUSED


def test_the_schedule_lists_memory_and_phases() -> None:
    text = compile_layer().as_text("schedule")
    for line in (
        "schedule of @layer",
        "  arguments 768 bytes",
        "  results 640 bytes",
        "  arena 128 bytes",
        "  %0: 128 bytes, arena at 0, alive 1 to 2",
        "  native call of 3 phases",
    ):
        assert line in text.splitlines()


def test_memory_analysis_states_device_and_process_memory() -> None:
    memory = compile_layer().memory_analysis()
    assert memory.argument_size_in_bytes == 4 * (2 * 8 + 8 * 4)
    assert memory.host_temp_size_in_bytes == 128
    assert memory.host_peak_memory_in_bytes == 768 + 640 + 128


def test_an_unknown_stage_is_an_error_with_the_stages() -> None:
    with pytest.raises(PipelineError) as error:
        compile_layer().as_text("fused")
    assert str(error.value) == (
        "no stage is named 'fused'; the stages are merge-devices, widen-small-dtypes, cse, dce, "
        "fold-reductions, fold-views, simplify, fold-diagonals, fill-out-of-bounds, "
        "fold-transposes, annotate-partial-sorts, fuse-products, fuse, or schedule"
    )


@pytest.mark.parametrize(
    "views", [lambda y: (y.T, y), lambda y: (y, y.T), lambda y: (y.T, y.reshape(-1), y)]
)
def test_a_result_and_its_transpose_take_two_phases(views: Any) -> None:
    def return_views(x: Any) -> Any:
        return views(x + 1)

    text = sd.jit(return_views).lower(np.ones((64, 32), np.float32)).compile().as_text("schedule")
    assert "  native call of 2 phases" in text
    assert "  arena 0 bytes" in text


def test_calls_without_results_are_listed() -> None:
    def show(x: Any) -> Any:
        sd.debug.print("{}", x)
        return x + 1

    text = sd.jit(show).lower(np.ones(3, np.float32)).compile().as_text("schedule")
    assert sum(line.startswith("  numpy: ") for line in text.splitlines()) == 1


@pytest.mark.parametrize(("size", "unit"), [(1 << 10, "ns"), (1 << 20, "us"), (1 << 26, "ms")])
def test_estimated_times_have_three_units(size: int, unit: str) -> None:
    x = sd.ShapeDtypeStruct((size,), np.float32)
    text = sd.jit(lambda x: x + 1).lower(x).compile().as_text("schedule")
    assert text.splitlines()[-1].endswith(f" {unit}")


def test_results_in_other_memory_and_fused_indices_have_no_buffers() -> None:
    def function(x: Any, i: Any) -> Any:
        y = x[i]
        return y, y.reshape(2, 2), x

    text = sd.jit(function).lower(np.ones(9, np.float32), np.zeros(4, np.int32)).compile()
    lines = str(text.as_text("schedule")).partition("buffers\n")[2].partition("\n\n")[0]
    assert [line.partition(", ")[2] for line in lines.splitlines()] == [
        "argument",
        "argument",
        "result",
    ]


def test_a_phase_without_a_label_has_the_name_of_its_kernel() -> None:
    function = prepare_for_scheduling(lambda x: snp.exp(x), 1)
    schedule = compile_schedule(function, host_machine())
    (segment,) = schedule.items
    assert isinstance(segment, Segment)
    segment.phases[:] = [phase._replace(label="") for phase in segment.phases]
    last = describe_schedule(function, schedule).splitlines()[-1]
    assert last.startswith(f"    {segment.phases[0].kernel.name}: ")
