"""Native programs give the results of the reference interpreter."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings, strategies as st

from shardir.backends.cpu import BACKEND, NativeBackend
from shardir.backends.cpu.codegen.target import ISAS, host_machine
from shardir.backends.cpu.executable import NativeExecutable
from shardir.backends.storage import Storage
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.text.parser import parse
from tests.backends.cpu.guard_pages import copy_before_guard_page
from tests.op_sample import Sample
from tests.programs.nan_sign_programs import ranks_signs
from tests.programs.strategies import modules
from tests.samples import ALL_SAMPLES, some_of_each

pytestmark = some_of_each

Array = npt.NDArray[Any]
EXAMPLE_COUNT = max(settings().max_examples // 2, 1)


def native_results(module: Module, arguments: list[Array]) -> list[Array]:
    """Return the results of a module for one device, with arguments before guard pages."""
    arguments_at_guard_pages = [
        Storage.of(copy_before_guard_page(np.asarray(argument))) for argument in arguments
    ]
    return [each.array for each in BACKEND.compile(module).run(arguments_at_guard_pages)]


SAMPLES_WITHOUT_EFFECTS = [
    sample for sample in ALL_SAMPLES if not sample.function().body.ops[-1].spec.effect
]


@pytest.mark.parametrize("sample", SAMPLES_WITHOUT_EFFECTS, ids=lambda sample: sample.id)
def test_every_operation_gives_the_reference_results(sample: Sample) -> None:
    module = Module((), (sample.function(),))
    arguments = [np.asarray(a) for a in sample.arrays()]
    assert are_close(
        run(module, arguments), native_results(module, arguments), tolerance_of(module)
    )


@settings(max_examples=EXAMPLE_COUNT)
@given(modules(), st.integers(0, 9))
def test_random_programs_give_the_results_of_the_interpreter(module: Module, seed: int) -> None:
    assume(not ranks_signs(module))
    arguments = [np.asarray(a) for a in random_arguments(module, seed)]
    assert are_close(
        run(module, arguments), native_results(module, arguments), tolerance_of(module)
    )


@pytest.mark.parametrize("isa", ISAS[:-1])
def test_programs_compiled_for_a_narrower_machine_give_the_reference_results(isa: str) -> None:
    """The program of a machine has kernels and library functions of its own."""
    machine = host_machine().limited_to(isa)
    module = parse(
        """\
func @main(%a: f32[20, 33], %b: f32[33, 40]) -> (f32[20, 40]) {
  %0 = dot(%a, %b, dims="ik,kj->ij") : f32[20, 40]
  %1 = exp(%0) : f32[20, 40]
  %2 = sort(%1, dim=1, keys=1, stable=true) : f32[20, 40]
  return %2
}
"""
    )
    arguments = [np.asarray(a) for a in random_arguments(module, 0)]
    program = NativeBackend(machine).compile(module)
    assert isinstance(program, NativeExecutable)
    assert program.schedule.machine == machine
    results = [each.array for each in program.run([Storage.of(a) for a in arguments])]
    assert are_close(run(module, arguments), results, tolerance_of(module))


def test_a_broadcast_row_is_not_overwritten() -> None:
    """The input has the address of the result and fewer bytes, because the program broadcasts
    it."""
    module = parse(
        """\
func @main(%a: f32[64, 300]) -> (f32[64, 300]) {
  %0 = sort(%a, dim=1, keys=1, stable=true) : f32[64, 300]
  %1 = slice(%0, starts=[0, 0], strides=[1, 1]) : f32[1, 300]
  %2 = fused(%1) : f32[64, 300] {
    (%3: f32[1, 300]) =>
    %4 = broadcast(%3, dims=[0, 1]) : f32[64, 300]
    %5 = add(%4, %4) : f32[64, 300]
    yield %5
  }
  %6 = sort(%2, dim=1, keys=1, stable=true) : f32[64, 300]
  return %6
}
"""
    )
    x = np.arange(64 * 300, dtype=np.float32).reshape(64, 300)
    np.testing.assert_array_equal(native_results(module, [x])[0], run(module, [x])[0])


def test_negative_starts_of_random_bits_are_clamped() -> None:
    module = parse(
        """\
func @main(%k: key[], %a: i32[], %b: i32[]) -> (u32[2, 2]) {
  %0 = random_bits_at(%k, %a, %b, shape=[4, 3]) : u32[2, 2]
  return %0
}
"""
    )
    key, first, second = (
        np.array(123456789, np.uint64),
        np.array(-1, np.int32),
        np.array(1, np.int32),
    )
    arguments: list[Array] = [key, first, second]
    assert native_results(module, arguments)[0].tolist() == run(module, arguments)[0].tolist()
