"""Tests of the helper that runs phases."""

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel, Phase
from tests.backends.cpu.phase_runner import RuleHarness


def _kernel_text(machine: HostDescription) -> str:
    module = LLVMModule(machine)
    f = LLVMFunction(module, "double_one", ("ptr", "ptr", "i64", "i64"))
    bases, record, task, _ = f.params
    source = f.load(f.offset(bases, f.load(record, "i64"), "ptr"), "ptr")
    target = f.load(f.offset(bases, f.load(f.offset(record, 8), "i64"), "ptr"), "ptr")
    value = f.load(f.offset(source, task, "float"), "float")
    f.store(value + value, f.offset(target, task, "float"))
    f.ret()
    return module.text()


def test_every_task_of_a_phase_runs() -> None:
    harness = RuleHarness(workers=3)
    x, y = np.arange(7, dtype=np.float32), np.zeros(7, np.float32)
    source, target = harness.view(x), harness.view(y)
    kernel = Kernel("double_one", _kernel_text)
    harness.run([Phase(kernel, (source.slot, target.slot), 7, 1.0)])
    np.testing.assert_array_equal(y, 2 * x)
