"""Run the items of a schedule from Python: native calls, NumPy calls, loops and branches.

A step takes the table of base addresses of one run. A loop updates the addresses in it after each
iteration, so that the code of its body stays the same. Items that need no Python are one native
call, their loops and branches included: only programs with NumPy calls or exchanges between
processes use these steps, for those calls and the control flow around them.
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.schedule.buffer_views import written_results
from shardir.backends.cpu.schedule.instructions import has_only_native_items
from shardir.backends.cpu.schedule.items import BranchItem, Item, NumPyCall, ScanItem, WhileItem
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.backends.numpy.marks import record_mark
from shardir.errors import RuleError
from shardir.ir.host_function import may_keep_operands
from shardir.ir.module import Block, Op
from shardir.ir.operation import missing_rule_hint
from shardir.ir.types import NumpyArray, TensorType

BaseAddresses = list[int]
"""The base addresses of a run, one for each slot."""

RunStep = Callable[[BaseAddresses], None]

LoadItems = Callable[[Sequence[Item]], RunStep]
"""Compiles items that need no Python to one call."""

OutsideExecutor = Callable[[Op], "ExchangeInto | None"]
"""Returns the implementation of an operation that involves other processes, `None` for others."""
ExchangeInto = Callable[[list[NumpyArray], list[NumpyArray]], None]
"""Takes operand arrays, valid until it returns, and writes into the result arrays."""

Compute = Callable[..., Sequence[NumpyArray]]
"""Takes the arrays of the operands and returns those of the results."""


def make_steps(
    items: Sequence[Item], load: LoadItems, outside: OutsideExecutor
) -> tuple[RunStep, ...]:
    """Return the steps that run the items in order."""
    steps: list[RunStep] = []
    for native, group in groupby(items, lambda item: has_only_native_items((item,))):
        together = tuple(group)
        steps += (
            [load(together)] if native else [_make_step(item, load, outside) for item in together]
        )
    return tuple(steps)


def _make_step(item: Item, load: LoadItems, outside: OutsideExecutor) -> RunStep:
    if isinstance(item, NumPyCall):
        into = outside(item.op)
        return _make_numpy_call(item) if into is None else _make_exchange(item, into)
    if isinstance(item, ScanItem):
        return _make_scan(item, load, outside)
    if isinstance(item, WhileItem):
        return _make_while(item, load, outside)
    assert isinstance(item, BranchItem)
    return _make_branch(item, load, outside)


def _make_exchange(item: NumPyCall, into: ExchangeInto) -> RunStep:
    takes, gives = (
        [array_view(view) for view in item.operands],
        [array_view(view) for view in item.results],
    )

    def step(bases: BaseAddresses) -> None:
        begin = time.monotonic_ns()
        into([take(bases) for take in takes], [give(bases) for give in gives])
        record_mark(item.op, begin)

    return step


def _make_numpy_call(item: NumPyCall) -> RunStep:
    op = item.op
    compute = _interpret_block(op.blocks[0]) if op.blocks else _reference_kernel(op)
    written = written_results(op)

    # A user function may keep its operands, but the arena is reused.
    copies_operands = "function" in op.attrs and may_keep_operands(op.attrs["function"])
    takes, gives = (
        [array_view(view) for view in item.operands],
        [array_view(view) for view in item.results],
    )

    def step(bases: BaseAddresses) -> None:
        begin = time.monotonic_ns()
        operands = [take(bases) for take in takes]
        if copies_operands:
            operands = [operand.copy() for operand in operands]
        try:
            with np.errstate(all="ignore"):
                arrays = compute(*operands)
        except MemoryError as error:
            error.add_note(f"while NumPy computed {op.name}; smaller batches need less memory")
            raise
        for number, (give, array) in enumerate(zip(gives, arrays, strict=True)):
            if number in written:
                give(bases)[...] = array
        record_mark(op, begin)

    return step


def _reference_kernel(op: Op) -> Compute:
    """Return an operation on one device as a function of arrays."""
    if op.spec.reference is None:
        hint = missing_rule_hint(op, "reference")
        raise RuleError(f"{op.name} has neither a kernel of CPUs nor reference semantics{hint}")
    kernel = kernel_of(op)
    return (lambda *operands: (kernel(*operands),)) if len(op.results) == 1 else kernel


def _interpret_block(block: Block) -> Compute:
    """Return a block of operations without control flow as a function of arrays."""
    steps = [(op, _reference_kernel(op)) for op in block.ops]

    def compute(*arrays: NumpyArray) -> list[NumpyArray]:
        values = dict(zip(block.params, arrays, strict=True))
        for op, kernel in steps:
            computed = kernel(*(values[value] for value in op.operands))
            values.update(zip(op.results, computed, strict=True))
        return [values[value] for value in block.returns]

    return compute


def _make_scan(item: ScanItem, load: LoadItems, outside: OutsideExecutor) -> RunStep:
    body = make_steps(item.body, load, outside)
    rounds = range(item.length)
    order = rounds[::-1] if item.backwards else rounds
    rows = [(each.row, each.start.slot, each.start.offset, each.step) for each in item.rows]

    def step(bases: BaseAddresses) -> None:
        starts = [(row, bases[slot] + offset, by) for row, slot, offset, by in rows]
        for i in order:
            for row, start, by in starts:
                bases[row] = start + i * by
            for each in body:
                each(bases)
            for read, write in item.swaps:
                bases[read], bases[write] = bases[write], bases[read]

    return step


def _make_while(item: WhileItem, load: LoadItems, outside: OutsideExecutor) -> RunStep:
    condition, body = (make_steps(each, load, outside) for each in (item.condition, item.body))
    slot, offset = item.going.slot, item.going.offset

    def step(bases: BaseAddresses) -> None:
        while True:
            for each in condition:
                each(bases)
            if not ctypes.c_uint8.from_address(bases[slot] + offset).value:
                return
            for each in body:
                each(bases)
            for read, write in item.swaps:
                bases[read], bases[write] = bases[write], bases[read]

    return step


def _make_branch(item: BranchItem, load: LoadItems, outside: OutsideExecutor) -> RunStep:
    branches = [make_steps(branch, load, outside) for branch in item.branches]
    last, chosen = len(branches) - 1, array_view(item.index)

    def step(bases: BaseAddresses) -> None:
        index = int(chosen(bases))
        for each in branches[index if 0 <= index <= last else last]:
            each(bases)

    return step


ArrayView = Callable[[BaseAddresses], NumpyArray]


def array_view(view: BufferView) -> ArrayView:
    """Return a function that makes a NumPy array of a view into the memory of a run."""
    slot, offset = view.slot, view.offset
    dtype = TensorType((), view.dtype).numpy
    is_builtin = dtype.isbuiltin == 1
    interface = {
        "shape": view.shape,
        "strides": view.strides,
        "typestr": dtype.str if is_builtin else f"|V{view.itemsize}",
        "version": 3,
    }

    def array(bases: BaseAddresses) -> NumpyArray:
        result = np.asarray(_ArrayInterface({**interface, "data": (bases[slot] + offset, False)}))
        return result if is_builtin else result.view(dtype)

    return array


class _ArrayInterface:
    """Memory with NumPy's array interface; element types unknown to NumPy are raw bytes."""

    __slots__ = ("__array_interface__",)

    def __init__(self, described: dict[str, object]) -> None:
        self.__array_interface__ = described
