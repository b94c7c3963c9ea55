"""Run phases through ctypes, to test kernels without the runtime.

A `RuleHarness` is also the context of a lowering rule, and allocates the slots of temporaries.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen import target
from shardir.backends.cpu.codegen.compiler import compile
from shardir.backends.cpu.codegen.imported_symbols import symbol_addresses
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    BufferView,
    Kernel,
    Order,
    Phase,
    Rule,
    row_major_strides,
)
from shardir.ir.builder import Builder
from shardir.ir.module import Op
from shardir.ir.operation import OpSpec
from shardir.ir.types import NUMPY_DTYPES, TensorType, dtype_name

Array = npt.NDArray[Any]
Entry = Callable[[int, int, int, int], None]
Imports = Callable[[Sequence[str], HostDescription], Mapping[str, int]]

GARBAGE_BYTE = 0xA5
"""The bytes of scratch memory, temporaries and results before phases write them."""
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_compiled: dict[tuple[HostDescription, str], Entry] = {}


def compiled_entry(
    kernel: Kernel, machine: HostDescription, imports: Imports = symbol_addresses
) -> Entry:
    """Return the code of a kernel, which is written for a machine and compiled once for this
    host."""
    key = machine, kernel.name
    if key not in _compiled:
        host = target.host_machine()
        addresses = imports(kernel.imports, host)
        library = compile(host, kernel.text(machine), [kernel.name], addresses)
        _compiled[key] = _ENTRY(library[kernel.name])
    return _compiled[key]


def full_view(array: Array, slot: int, dtype: str | None = None) -> BufferView:
    """Return a view of a full array in a buffer that starts at its first element.

    `dtype` names element types that NumPy does not have (random keys).
    """
    return BufferView(slot, 0, array.shape, array.strides, dtype or dtype_name(array.dtype))


def run_phases(
    phases: Sequence[Phase],
    buffers: Sequence[Array],
    workers: int = 1,
    imports: Imports = symbol_addresses,
    machine: HostDescription | None = None,
) -> None:
    """Run all tasks of all phases in order; slot k is `buffers[k - 1]`, slot 0 is scratch memory.

    Tasks are assigned to `workers` round-robin; each worker has its own scratch memory, and tasks
    run one at a time. Every second phase runs its tasks in reverse, because their order must not
    matter.
    """
    scratch = _allocate_aligned(workers * SCRATCH_BYTES_PER_WORKER)
    scratch[:] = GARBAGE_BYTE
    bases = np.array([scratch.ctypes.data, *(b.ctypes.data for b in buffers)], np.int64)
    for number, phase in enumerate(phases):
        entry = compiled_entry(phase.kernel, machine or host_machine(), imports)
        record = np.array([_word(word) for word in phase.record], np.int64)
        tasks = range(phase.tasks)
        for task in reversed(tasks) if number % 2 else tasks:
            entry(bases.ctypes.data, record.ctypes.data, task, task % workers)


def _word(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


def _allocate_aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    whole = np.empty(nbytes + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + nbytes]


class RuleHarness:
    """The buffers of one operation, and the context of its lowering rule."""

    def __init__(self, workers: int = 2, machine: HostDescription | None = None) -> None:
        self.workers, self.machine = workers, machine or host_machine()
        self.buffers: list[Array] = []

    def view(self, array: Array, dtype: str | None = None) -> BufferView:
        """Add an array as a buffer, and return its view."""
        self.buffers.append(array)
        return full_view(array, len(self.buffers), dtype)

    def temporary(self, nbytes: int) -> int:
        made = _allocate_aligned(nbytes)
        made[:] = GARBAGE_BYTE
        self.buffers.append(made)
        return len(self.buffers)

    def run(self, phases: Sequence[Phase], imports: Imports = symbol_addresses) -> None:
        run_phases(phases, self.buffers, self.workers, imports, self.machine)


def lower_and_run(
    rule: Rule,
    op: Op,
    arrays: Sequence[Array],
    outs: Sequence[Array],
    workers: int = 2,
    machine: HostDescription | None = None,
) -> Sequence[Phase] | None:
    """Lower one operation and run it on arrays of any strides; `outs` receive the results.

    Return the phases, or `None` if the rule does not support the operation. The rule selects
    kernels for `machine`, by default the host; the host must have the instructions of `machine`.
    """
    harness = RuleHarness(workers, machine)
    operands = [harness.view(a, v.type.dtype) for a, v in zip(arrays, op.operands, strict=True)]
    results = [harness.view(a, v.type.dtype) for a, v in zip(outs, op.results, strict=True)]
    phases = rule(op, operands, results, harness)
    if phases is not None:
        harness.run(phases)
    return phases


def lower_for_machine(
    rule: Rule, op: Op, machine: HostDescription, workers: int = 2
) -> Sequence[Phase]:
    """Return the phases that a rule makes for dense arrays on a machine. Nothing runs, so the
    machine may differ from the host."""
    types = [value.type for value in (*op.operands, *op.results)]
    views = [
        BufferView(slot, 0, type.shape, row_major_strides(type), type.dtype)
        for slot, type in enumerate(types, 1)
    ]
    operand_count = len(op.operands)
    phases = rule(op, views[:operand_count], views[operand_count:], RuleHarness(workers, machine))
    assert phases is not None, f"the rule has no phases for {op.name}"
    return phases


def selected_kernels(
    rule: Rule, op: Op, machine: HostDescription, workers: int = 2
) -> list[Kernel]:
    """Return the kernels of `lower_for_machine`."""
    return [phase.kernel for phase in lower_for_machine(rule, op, machine, workers)]


def selected_kernel_names(
    rule: Rule, op: Op, machine: HostDescription, workers: int = 2
) -> list[str]:
    """Return the names of `selected_kernels`."""
    return [kernel.name for kernel in selected_kernels(rule, op, machine, workers)]


def make_op(spec: OpSpec, *types: TensorType, result: Any = None, **attrs: Any) -> Op:
    """Return an operation on operands of these types."""
    b = Builder()
    b.emit(spec, *(b.param(type) for type in types), result=result, **attrs)
    return b.ops[0]


def run_rule(
    rule: Rule,
    op: Op,
    arrays: Sequence[Array],
    order: Order | None = None,
    workers: int = 2,
    machine: HostDescription | None = None,
) -> list[Array]:
    """Return the results of one operation in new arrays, whose layout `order` determines.

    Raise `AssertionError` if the rule does not support the operation.
    """
    outs = []
    for value in op.results:
        given = zip(arrays, op.operands, strict=True)
        views = [full_view(array, 1 + i, v.type.dtype) for i, (array, v) in enumerate(given)]
        dims = tuple(order(op, views)) if order else tuple(range(value.type.rank))
        shape = [value.type.shape[d] for d in dims]
        dense = np.full(shape, GARBAGE_BYTE, np.uint8).astype(NUMPY_DTYPES[value.type.dtype])
        outs.append(np.transpose(dense, [dims.index(d) for d in range(len(dims))]))
    phases = lower_and_run(rule, op, arrays, outs, workers, machine)
    assert phases is not None, f"the rule has no phases for {op.name}"
    return outs
