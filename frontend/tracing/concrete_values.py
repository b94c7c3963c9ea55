"""Elements of traced values, for functions that are traced for one call with known arguments.

As in JAX, Python's `if` and `while` work in a function that `grad`, `jvp`, `vjp` or `linearize`
differentiates outside of `jit`: the elements of its arguments are known, and so are those of all
values that it computes from them. They are computed when Python needs them: the operations that
they depend on run on the arguments. Values that were computed before are arguments of the programs
that run later, so that each iteration of a loop runs its own operations only.

In a `shard_map` outside of `jit`, the elements of a value are known if all devices share it, and
those of any other value are known for each device. They are the results of a manual computation
with the operations that the value depends on, which stacks the values of all devices.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shardir.ir.builder import substitute
from shardir.ir.dtypes import KEYS
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import INEXACT, NumpyArray
from shardir.ops.elementwise.elementwise import stop_gradient

if TYPE_CHECKING:
    from shardir.frontend.arrays.array import Array
    from shardir.frontend.shardings.sharding import Sharding
    from shardir.frontend.tracing.tracer import Tracer

BlockRunner = Callable[
    [Block, Sequence[tuple["Sharding", int]], Sequence[object]], Sequence["Array"]
]
"""Runs a block, with the shardings that the user requested in it, on arrays for its parameters."""


class ProgramValues(Protocol):
    """The attributes of a `TracedProgram` that identify its values."""

    captured: dict[int, tuple["Array", "Tracer"]]
    unnamed_values: dict[Value, Value]
    requested_shardings: dict[tuple["Sharding", int], int]


class ManualBlock(ABC):
    """The block of a manual computation that is being traced."""

    operands: tuple[Value, ...]
    """The values whose shards the parameters of the block are."""

    @abstractmethod
    def is_shared(self, value: Value) -> bool:
        """Return whether all devices have the same elements of a value of the block."""

    @abstractmethod
    def make_operation(
        self,
        params: Sequence[Value],
        ops: Sequence[Op],
        values: Sequence[Value],
        stacks: Mapping[Value, Value],
    ) -> Op:
        """Return the operation that computes values of the block on each device, and stacks those
        of all devices.

        `params` are the parameters of the block. `stacks` has the stacks of values that `ops` use,
        and others.
        """

    @abstractmethod
    def shard_names(self) -> Sequence[str]:
        """Return the name of each device and of its mesh coordinates, in the order of the stack."""


class TraceValues(Protocol):
    """The attributes of a `Trace` that define its values."""

    params: list[Value]
    ops: list[Op]
    inputs: Sequence[Value] | None
    manual: ManualBlock | None
    has_ended: bool

    @property
    def parent(self) -> "TraceValues | None": ...

    @property
    def program(self) -> ProgramValues: ...

    @property
    def is_staged(self) -> bool: ...


class ConcreteValues:
    """The elements of the values of a program, as far as they are known while it is traced."""

    def __init__(
        self, arguments: Sequence[object], run_block: BlockRunner, is_derivative: bool
    ) -> None:
        """`arguments` are the arrays and numbers on which the program will run.

        `is_derivative`: the program computes derivatives with respect to them.
        """
        self._arguments, self._run_block = arguments, run_block
        self._is_derivative = is_derivative
        self._known: dict[Value, object] = {}
        self._inputs: dict[Value, Value] = {}
        """The values of enclosing traces that parameters equal."""
        self._definitions: dict[Value, tuple[int, Op]] = {}
        """The operation that defines a value, and its position in the order of tracing."""
        self._manual_traces: dict[Value, TraceValues] = {}
        """The innermost manual computation that a value belongs to, for values that belong to
        one."""
        self._sharded: dict[Value, Value] = {}
        """The values whose shards the parameters of manual computations are."""
        self._stacks: dict[Value, Value] = {}
        """The value that stacks a value of a manual computation of all devices."""
        self._roots: set[Value] = set()
        """The parameters of the program."""
        self._num_collected: dict[TraceValues, int] = {}
        self._num_operations = 0
        self.num_staged = 0
        """The number of functions of `jit` that are being inlined; their elements are not known."""

    def find(self, trace: TraceValues, value: Value) -> NumpyArray | None:
        """Return the elements of a value, or `None` if they are unknown."""
        source = self._find_source(trace, value)
        if source is None or not self._compute(trace.program, source):
            return None
        return np.asarray(self._known[source], value.type.numpy)

    def find_shards(self, trace: TraceValues, value: Value) -> Sequence[tuple[str, NumpyArray]]:
        """Return the elements of a value of a manual computation on each device, named by it.

        There are none if they are not known, or if the value is in a nested manual computation.
        """
        source = self._find_source(trace, value)
        manual = None if source is None else self._manual_traces.get(source)
        if source is None or manual is None or manual.manual is None:
            return ()
        stack = self._stack(trace.program, manual, source)
        if stack is None or stack in self._manual_traces or not self._compute(trace.program, stack):
            return ()
        return list(zip(manual.manual.shard_names(), np.asarray(self._known[stack]), strict=True))

    def is_differentiated(self, trace: TraceValues, value: Value) -> bool:
        """Return whether a value may have a derivative, which a number of Python cannot carry."""
        captured = {tracer.value for _, tracer in trace.program.captured.values()}
        checked: set[Value] = set()
        pending = [trace.program.unnamed_values.get(value, value)]
        while pending:
            value = pending.pop()
            if value in checked or value in captured or value.type.dtype not in INEXACT:
                continue
            checked.add(value)
            if value in self._sharded:
                pending.append(self._sharded[value])
                continue
            if value not in self._definitions:
                if self._is_derivative or value not in self._roots:
                    return True
                continue
            op = self._definitions[value][1]
            if op.spec is not stop_gradient:
                pending += op.uses()
        return False

    def _find_source(self, trace: TraceValues, value: Value) -> Value | None:
        """Return the value that defines the elements of `value`, or `None` for values of blocks
        that may run later."""
        if self.num_staged or trace.is_staged or trace.has_ended or value.type.dtype in KEYS:
            return None
        self._collect(trace)
        return self._source(trace.program.unnamed_values.get(value, value))

    def _collect(self, trace: TraceValues) -> TraceValues | None:
        """Record the new values of a trace and of those that enclose it.

        Return the innermost manual computation around the values of the trace, if there is one.
        """
        program = trace.program
        manual = None
        if trace.parent is not None:
            manual = self._collect(trace.parent)
            self._inputs.update(zip(trace.params, trace.inputs or (), strict=False))
            if trace.manual is not None:
                manual = trace
                self._sharded.update(zip(trace.params, trace.manual.operands, strict=True))
                self._manual_traces.update(dict.fromkeys(trace.params, trace))
        else:
            self._known.update(zip(trace.params, self._arguments, strict=False))
            self._roots.update(trace.params)
            self._known.update((tracer.value, x) for x, tracer in program.captured.values())
        added = trace.ops[self._num_collected.get(trace, 0) :]
        for op in substitute(Block((), tuple(added), ()), program.unnamed_values).ops:
            self._define(op, manual)
        self._num_collected[trace] = len(trace.ops)
        return manual

    def _define(self, op: Op, manual: TraceValues | None) -> None:
        self._num_operations += 1
        self._definitions.update(dict.fromkeys(op.results, (self._num_operations, op)))
        if manual is not None:
            self._manual_traces.update(dict.fromkeys(op.results, manual))

    def _source(self, value: Value) -> Value:
        """Return the value of an enclosing trace that a parameter equals, or the value itself."""
        while value in self._inputs:
            value = self._inputs[value]
        return value

    def _compute(self, program: ProgramValues, value: Value) -> bool:
        """Compute the elements of a value that no parameter of a block equals; return whether they
        are known now."""
        if value in self._known:
            return True
        manual = self._manual_traces.get(value)
        if manual is None:
            ops = self._operations_before(value, None)
            if ops:
                self._run(program, ops)
            return value in self._known
        if manual.manual is None or not manual.manual.is_shared(value):
            return False
        stack = self._stack(program, manual, value)
        if stack is None or not self._compute(program, stack):
            return False
        self._known[value] = np.asarray(self._known[stack])[0]
        return True

    def _stack(self, program: ProgramValues, manual: TraceValues, value: Value) -> Value | None:
        """Return a value around a manual computation that stacks `value` of all devices, or `None`
        if it depends on a side effect."""
        if self._has_stack(value):
            return self._stacks[value]
        assert manual.manual is not None
        assert manual.parent is not None
        ops = self._operations_before(value, manual)
        if not ops and value not in manual.params:
            return None
        sources = {used: self._source(used) for op in ops for used in op.uses()}
        results = tuple([result for op in ops for result in op.results]) or (value,)
        block = substitute(Block((), tuple(ops), results), sources)
        known = {each: stack for each, stack in self._stacks.items() if stack in self._known}
        op = manual.manual.make_operation(manual.params, block.ops, results, known)
        operands = {used: program.unnamed_values.get(used, used) for used in op.operands}
        (op,) = substitute(Block((), (op,), ()), operands).ops
        self._define(op, self._collect(manual.parent))
        self._stacks.update(zip(results, op.results, strict=True))
        return self._stacks[value]

    def _has_stack(self, value: Value) -> bool:
        return self._stacks.get(value) in self._known

    def _operations_before(self, value: Value, manual: TraceValues | None) -> list[Op]:
        """Return the operations of a manual computation, or of the program without one, that
        compute a value from known ones, in their order.

        There are none if the value depends on an unknown value or on a side effect.
        """
        found: dict[int, Op] = {}
        pending = [value]
        while pending:
            value = self._source(pending.pop())
            if value in self._known or self._manual_traces.get(value) is not manual:
                continue
            if self._has_stack(value):
                continue
            if value not in self._definitions:
                if manual is not None and value in manual.params:
                    continue
                return []
            position, op = self._definitions[value]
            if position not in found:
                if any(each.spec.effect for each in Block((), (op,), ()).walk()):
                    return []
                found[position] = op
                pending += op.uses()
        return [found[position] for position in sorted(found)]

    def _run(self, program: ProgramValues, ops: Sequence[Op]) -> None:
        """Run operations on known values, and record the elements of their results."""
        results = tuple([result for op in ops for result in op.results])
        block = Block((), tuple(ops), results)
        sources = {value: self._source(value) for op in ops for value in op.uses()}
        block = substitute(block, sources)
        params = block.captures()
        block = Block(params, block.ops, results)
        requested = list(program.requested_shardings)
        made = self._run_block(block, requested, [self._known[value] for value in params])
        self._known.update(zip(results, made, strict=True))
