"""Traces of functions of `jit` that other traced functions call.

Such a call appends the operations of the function to the program that is being traced. Later calls
with arguments of the same types append copies of these operations instead of running the function,
as in JAX. Copies are possible if the operations refer to the arguments alone: not to arrays or
traced values that the function captures, and not to shardings, named axes or custom derivatives,
which belong to the program in which they were traced.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from shardir import ops as operations
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.call_table import MAX_CACHED_PROGRAMS, trace_context
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.manual_axes import is_in_manual_region
from shardir.frontend.tracing.function_tracing import trace_inlined
from shardir.frontend.tracing.named_axes import bound_axes
from shardir.frontend.tracing.trace import append_ops, require_trace, wrap_value
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Op, Value

OPS_OF_ONE_PROGRAM = frozenset([operations.manual_computation, operations.sharding_group])
"""Operations whose attributes refer to the mesh or to other operations of their program."""


@dataclass(frozen=True)
class InlinedTrace:
    """The operations of a function, as a block of its arguments, and its results.

    `hints` are the preferred names of values. `results` are the leaves of the result: numbers, or
    the positions of values that the block returns with their weakness.
    """

    block: Block
    hints: dict[Value, str]
    structure: tree.PyTreeDef
    results: tuple[tuple[int, bool] | complex, ...]

    def append(self, args: Sequence[Tracer]) -> PyTree:
        """Append copies of the operations to the current trace, and return the result."""
        trace = require_trace("a traced function")
        values = [arg.value for arg in args]
        copies = dict(zip(self.block.params, values, strict=True))

        def copy_value(value: Value) -> Value:
            copy = copies[value] = Value(value.type)
            if value in self.hints:
                trace.program.name_hints[copy] = self.hints[value]
            return copy

        def copy_block(block: Block) -> Block:
            params = tuple(map(copy_value, block.params))
            ops = tuple(map(copy_op, block.ops))
            return Block(params, ops, tuple([copies[value] for value in block.returns]))

        def copy_op(op: Op) -> Op:
            operands = tuple([copies[value] for value in op.operands])
            blocks = tuple(map(copy_block, op.blocks))
            results = tuple(map(copy_value, op.results))
            return Op(op.spec, operands, results, op.attrs, blocks, op.loc, op.why)

        append_ops(trace, [copy_op(op) for op in self.block.ops])
        leaves = [
            wrap_value(copies[self.block.returns[each[0]]], each[1])
            if isinstance(each, tuple)
            else each
            for each in self.results
        ]
        return tree.unflatten(self.structure, leaves)


class InlinedTraces(dict[Hashable, InlinedTrace]):
    """The traces of one function, by the types of its arguments and the trace context."""

    __slots__ = ()

    def find(
        self, structure: tree.PyTreeDef, args: Sequence[Tracer], static: Hashable
    ) -> tuple[Hashable, InlinedTrace | None]:
        """Return the key of a call, and its trace if it is known; the key is `None` for a call
        that cannot share a trace."""
        trace = require_trace("a traced function")
        if trace.program.sharding_types is not None or bound_axes() or is_in_manual_region():
            return None, None
        types = tuple([(arg.value.type, arg.weak_type) for arg in args])
        key = structure, types, static, trace_context()
        try:
            return key, self.get(key)
        except Exception:  # Static arguments of calls inside of traces need no hash.
            return None, None

    def add(
        self, fun: Callable[..., PyTree], args: Sequence[Tracer], what: str, key: Hashable
    ) -> PyTree:
        """Append the operations of `fun` to the current trace and return its result; store the
        trace under `key`."""
        program, ops = require_trace(what).program, require_trace(what).ops
        num_ops, num_internal = len(ops), len(program.internal_tracers)
        result, is_closed = trace_inlined(fun, args, what)
        if key is not None and is_closed and len(program.internal_tracers) == num_internal:
            found = _make_trace(program, args, ops[num_ops:], result)
            if found is not None:
                if len(self) >= MAX_CACHED_PROGRAMS:
                    self.clear()
                self[key] = found
        return result


def _make_trace(
    program: TracedProgram, args: Sequence[Tracer], ops: Sequence[Op], result: PyTree
) -> InlinedTrace | None:
    """Return the trace of a call with these operations, or `None` if they refer to other values of
    the program, or to its mesh."""
    leaves, structure = tree.flatten(result)
    returned = [leaf.value for leaf in leaves if isinstance(leaf, Tracer)]
    if not all(isinstance(leaf, Tracer) or is_number(leaf) for leaf in leaves):
        return None
    params = tuple([program.unnamed_values.get(arg.value, arg.value) for arg in args])
    body = substitute(Block((), tuple(ops), tuple(returned)), program.unnamed_values)
    if len(set(params)) < len(params) or not set(body.captures()) <= set(params):
        return None
    block = Block(params, body.ops, body.returns)
    values = [value for op in block.walk() for value in _defined_values(op)]
    if any(value.sharding for value in values) or any(
        op.spec in OPS_OF_ONE_PROGRAM for op in block.walk()
    ):
        return None
    hints = {value: program.name_hints.get(value, value.name) for value in values}
    position = iter(range(len(returned)))
    return InlinedTrace(
        block,
        {value: hint for value, hint in hints.items() if not hint.isdigit()},
        structure,
        tuple([(next(position), x.weak_type) if isinstance(x, Tracer) else x for x in leaves]),
    )


def _defined_values(op: Op) -> list[Value]:
    """Return the results of an operation and the parameters of its blocks."""
    return [*op.results, *(param for block in op.blocks for param in block.params)]
