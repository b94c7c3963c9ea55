"""Programs of functions that are traced at every call, because variables that they capture may
change between calls.

Two calls that trace to the same program share the compiled one. A fingerprint identifies it, which
ignores names and locations.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.config import config
from shardir.frontend.dispatch.call_table import MAX_CACHED_PROGRAMS, trace_context
from shardir.frontend.dispatch.programs.lowering import LoweredProgram, lower
from shardir.frontend.dispatch.programs.runnable import Runnable
from shardir.frontend.dispatch.traced_calls import ArgumentLeaf, signature_of_leaf, trace_call
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.shardings.sharding_tokens import renumber_tokens
from shardir.frontend.tracing.concrete_values import ConcreteValues
from shardir.frontend.tracing.function_tracing import TracedFunction
from shardir.frontend.tracing.trace import append_ops, require_trace, use_trace, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.builder import Builder, inline
from shardir.ir.module import Block, Module, Value

_temporary_programs: dict[object, Runnable] = {}


def compile_temporary(plan: LoweredProgram, traced: TracedFunction) -> Runnable:
    """Return the compiled program of a function that is traced at every call.

    Two calls that trace to the same program share it; captured arrays are arguments.
    """
    weak = tuple(abstract.weak for abstract in traced.results)
    key = module_fingerprint(plan.module), plan.user_shardings, plan.devices, weak, trace_context()
    found = _temporary_programs.get(key)
    if found is None:
        if len(_temporary_programs) >= MAX_CACHED_PROGRAMS:
            _temporary_programs.clear()
        found = _temporary_programs[key] = Runnable(plan, traced.results, ())
    return found


def run_temporary(
    fun: UserFunction,
    name: str,
    leaves: Sequence[object],
    labels: Sequence[str],
    uneven: str | None = None,
    is_derivative: bool = True,
) -> PyTree:
    """Trace `fun` for this call outside of a trace, run it on `leaves` and return its pytree of
    results.

    `uneven` is the option of `jit`; the setting applies if it is `None`. `is_derivative`: `fun` may
    differentiate with respect to `leaves`.
    """
    described = [
        ArgumentLeaf(
            label, f"argument {label} of {name}", signature_of_leaf(leaf, f"{label} of {name}")
        )
        for label, leaf in zip(labels, leaves, strict=True)
    ]
    # The function may write into arrays of NumPy while it is traced, before its program runs.
    leaves = [from_numpy(leaf) if type(leaf) is np.ndarray else leaf for leaf in leaves]
    traced, structure = trace_call(
        fun,
        name,
        described,
        lambda each: (list(each), {}),
        True,
        concrete_values=ConcreteValues(leaves, _run_outside, is_derivative),
    )
    placed = [leaf.signature.sharding for leaf in described]
    free = [None] * len(traced.results)
    mode = config.uneven if uneven is None else uneven
    plan = lower(traced, placed, free, [leaf.description for leaf in described], mode)
    results = compile_temporary(plan, traced)([*leaves, *traced.captured])
    return tree.unflatten(structure, results)


def append_foreign_block(
    block: Block, requested: Sequence[tuple[Sharding, int]], tracers: Sequence[Tracer]
) -> tuple[Value, ...]:
    """Append the operations of a block of any program, with shardings `requested`, to the current
    trace, and return its results."""
    trace = require_trace("a block")
    b = Builder(trace.program.names)
    own = renumber_tokens(block, requested, trace.program)
    values = inline(b, own, [tracer.value for tracer in tracers])
    append_ops(trace, b.ops)
    return values


def _run_outside(
    block: Block, requested: Sequence[tuple[Sharding, int]], leaves: Sequence[object]
) -> Sequence[Array]:
    """Run a block of a program, with shardings `requested`, outside of all traces."""

    def apply(*tracers: Tracer) -> list[Tracer]:
        return [wrap_value(value) for value in append_foreign_block(block, requested, tracers)]

    labels = [f"value{i}" for i in range(len(leaves))]
    with use_trace(None):
        made: list[Array] = run_temporary(apply, "elements", leaves, labels)
    return made


def module_fingerprint(module: Module) -> Hashable:
    """Return a key that is equal for modules with the same operations, types and shardings."""
    numbers: dict[Value, int] = {}
    parts: list[object] = [module.meshes]
    for function in module.functions:
        _append_block(function.body, numbers, parts)
        parts.append(function.result_shardings)
    return tuple(parts)


def _append_block(block: Block, numbers: dict[Value, int], parts: list[object]) -> None:
    for param in block.params:
        numbers[param] = len(numbers)
        parts.append((param.type, param.sharding))
    for op in block.ops:
        parts.append(op.spec)
        parts.append(tuple([numbers[v] for v in op.operands]))
        for name, value in op.attrs.items():
            parts.append(name)
            parts.append(_attribute_key(value))
        for inner in op.blocks:
            _append_block(inner, numbers, parts)
        for result in op.results:
            numbers[result] = len(numbers)
            parts.append((result.type, result.sharding))
    parts.append(tuple([numbers[v] for v in block.returns]))


def _attribute_key(value: object) -> object:
    """Return numbers as text, because zeros are signed and NaN is not equal to itself."""
    if isinstance(value, (float, complex)):
        return type(value), repr(value)
    if isinstance(value, tuple):
        return tuple(map(_attribute_key, value))
    return value
