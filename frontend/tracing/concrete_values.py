"""Elements of traced values, for functions that are traced for one call with known arguments.

As in JAX, Python's `if` and `while` work in a function that `grad`, `jvp`, `vjp` or `linearize`
differentiates outside of `jit`: the elements of its arguments are known, and so are those of all
values that it computes from them. They are computed when Python needs them: the operations that
they depend on run on the arguments. Values that were computed before are arguments of the programs
that run later, so that each iteration of a loop runs its own operations only.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shardir.ir.builder import substitute
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


class TraceValues(Protocol):
    """The attributes of a `Trace` that define its values."""

    params: list[Value]
    ops: list[Op]
    inputs: Sequence[Value] | None
    has_ended: bool

    @property
    def parent(self) -> "TraceValues | None": ...

    @property
    def program(self) -> ProgramValues: ...

    @property
    def is_staged(self) -> bool: ...


class ConcreteValues:
    """The elements of the values of a program, as far as they are known while it is traced."""

    def __init__(self, arguments: Sequence[object], run_block: BlockRunner) -> None:
        """`arguments` are the arrays and numbers on which the program will run."""
        self._arguments, self._run_block = arguments, run_block
        self._known: dict[Value, object] = {}
        self._inputs: dict[Value, Value] = {}
        """The values of enclosing traces that parameters equal."""
        self._definitions: dict[Value, tuple[int, Op]] = {}
        """The operation that defines a value, and its position in the order of tracing."""
        self._num_collected: dict[TraceValues, int] = {}
        self._num_operations = 0
        self.num_staged = 0
        """The number of functions of `jit` that are being inlined; their elements are not known."""

    def find(self, trace: TraceValues, value: Value) -> NumpyArray | None:
        """Return the elements of a value, or `None` if they are unknown."""
        if self.num_staged or trace.is_staged or trace.has_ended or value.type.dtype == "key":
            return None
        self._collect(trace)
        source = self._source(trace.program.unnamed_values.get(value, value))
        ops = self._operations_before(source)
        if ops:
            self._run(trace.program, ops)
        if source not in self._known:
            return None
        return np.asarray(self._known[source], value.type.numpy)

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
            if value not in self._definitions:
                return True
            op = self._definitions[value][1]
            if op.spec is not stop_gradient:
                pending += op.uses()
        return False

    def _collect(self, trace: TraceValues) -> None:
        """Record the new values of a trace and of those that enclose it."""
        program = trace.program
        if trace.parent is not None:
            self._collect(trace.parent)
            self._inputs.update(zip(trace.params, trace.inputs or (), strict=False))
        else:
            self._known.update(zip(trace.params, self._arguments, strict=False))
            self._known.update((tracer.value, x) for x, tracer in program.captured.values())
        added = trace.ops[self._num_collected.get(trace, 0) :]
        for op in substitute(Block((), tuple(added), ()), program.unnamed_values).ops:
            self._num_operations += 1
            self._definitions.update(dict.fromkeys(op.results, (self._num_operations, op)))
        self._num_collected[trace] = len(trace.ops)

    def _source(self, value: Value) -> Value:
        """Return the value of an enclosing trace that a parameter equals, or the value itself."""
        while value in self._inputs:
            value = self._inputs[value]
        return value

    def _operations_before(self, value: Value) -> list[Op]:
        """Return the operations that compute a value from known ones, in their order.

        There are none if the value depends on an unknown value or on a side effect.
        """
        found: dict[int, Op] = {}
        pending = [value]
        while pending:
            value = self._source(pending.pop())
            if value in self._known:
                continue
            if value not in self._definitions:
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
