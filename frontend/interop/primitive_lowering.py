"""Primitives without a rule, as the jaxpr or the StableHLO operations that implement them.

Libraries such as Equinox implement a primitive by a Python function of other primitives. JAX traces
that function, and its jaxpr, which may contain callbacks, is read into the current trace. JAX
lowers any other primitive alone, for CPUs; the reader of StableHLO reads that text, and its
operations become part of the current trace. The derivative is the one that JAX defines for the
primitive.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import jax
from jax.extend import core

from shardir.errors import ShardirError
from shardir.frontend.interop.jax_tracing import (
    apply_settings_to_jax,
    jax_struct_of,
    trace_to_jaxpr,
)
from shardir.frontend.interop.primitive_rules.derivatives import (
    IsolatedEquation,
    apply_with_jax_jvp,
)
from shardir.frontend.interop.primitive_rules.registry import Equation
from shardir.frontend.tracing.trace import append_block, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_vmap import custom_vmap
from shardir.frontend.transforms.vmap import vmap
from shardir.ir.module import Block
from shardir.ops.opaque import unknown_operations
from shardir.passes.simplify.inline_calls import inline_calls
from shardir.stablehlo.reader import read

_Computation: TypeAlias = Callable[..., tuple[Tracer, ...]]


class NotLoweredError(Exception):
    """JAX does not lower a primitive to operations that the reader supports; states the reason."""


def apply_lowered(equation: Equation) -> list[Tracer]:
    """Return the results of a primitive; raise `NotLoweredError` if it has no such lowering."""
    isolated = IsolatedEquation(equation)
    implementation = _trace_implementation(isolated)
    compute = (
        _append_lowering(_lower(isolated))
        if implementation is None
        else _read_implementation(isolated, implementation)
    )

    def primal(*args: Tracer) -> tuple[Tracer, ...]:
        return compute(*isolated.all_values(args))

    results: Sequence[Tracer] = apply_with_jax_jvp(isolated, primal)
    return list(results)


def _append_lowering(body: Block) -> _Computation:
    return lambda *values: tuple(map(wrap_value, append_block(body, values, Block((), (), ()))))


def _read_implementation(
    isolated: IsolatedEquation, implementation: core.ClosedJaxpr
) -> _Computation:
    """Return the function that reads an implementation. `vmap` uses the batching rule of JAX, which
    may combine the elements of the batch."""
    reader = isolated.equation.reader

    def compute(*values: Tracer) -> tuple[Tracer, ...]:
        return tuple(reader.read(implementation, values))

    def rule(
        axis_size: int, in_batched: Sequence[bool], *values: Tracer
    ) -> tuple[tuple[Tracer, ...], tuple[bool, ...]]:
        in_axes = [0 if is_batched else None for is_batched in in_batched]
        structs = [jax_struct_of(x) for x in values]

        def trace(out_axes: Sequence[int | None]) -> core.ClosedJaxpr:
            apply, axes = isolated.as_jax_function, list(out_axes)
            return trace_to_jaxpr(jax.vmap(apply, in_axes, axes, axis_size=axis_size), structs)[0]

        out_axes: list[int | None] = [0 for _ in implementation.out_avals]
        try:
            trace(out_axes)
        except NotImplementedError:  # JAX has no batching rule for the primitive.
            return vmap(compute, in_axes, axis_size=axis_size)(*values), (True,) * len(out_axes)
        for number in range(len(out_axes)):
            out_axes[number] = None
            try:
                trace(out_axes)
            except ValueError:  # The result depends on the element of the batch.
                out_axes[number] = 0
        results = tuple(reader.read(trace(out_axes), values))
        return results, tuple(axis == 0 for axis in out_axes)

    mapped = custom_vmap(compute)
    mapped.def_vmap(rule)
    return mapped


def _trace_implementation(isolated: IsolatedEquation) -> core.ClosedJaxpr | None:
    """Return the jaxpr of the Python function that implements a primitive; `None` without one.

    The implementation of a primitive of JAX itself compiles a program of this one primitive. That
    of a library may apply the primitive to other operands, such as a solver to a smaller system.
    """
    source = isolated.equation.source
    given = source.primitive, [each.aval for each in source.invars]
    structs = [jax_struct_of(x) for x in isolated.all_values(isolated.args)]
    try:
        program, _ = trace_to_jaxpr(isolated.call_implementation, structs)
    except Exception:  # An implementation is code of a library, which may raise any error.
        return None
    used = (
        (each.primitive, [operand.aval for operand in each.invars])
        for each in _all_equations(program.jaxpr)
    )
    return None if given in used else program


def _all_equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """Yield the equations of a jaxpr and of those that its equations contain."""
    for equation in jaxpr.eqns:
        yield equation
        for nested in jax.tree.leaves(
            equation.params, is_leaf=lambda x: isinstance(x, (core.Jaxpr, core.ClosedJaxpr))
        ):
            if isinstance(nested, (core.Jaxpr, core.ClosedJaxpr)):
                yield from _all_equations(getattr(nested, "jaxpr", nested))


def _lower(isolated: IsolatedEquation) -> Block:
    """Return the body of the program to which JAX lowers the equation."""
    structs = [jax_struct_of(x) for x in isolated.all_values(isolated.args)]
    if any(jax.dtypes.issubdtype(struct.dtype, jax.dtypes.extended) for struct in structs):
        raise NotLoweredError("its operands include PRNG keys")
    try:
        with apply_settings_to_jax():
            traced = jax.jit(isolated.as_jax_function, keep_unused=True).trace(*structs)
            text = traced.lower(lowering_platforms=("cpu",)).as_text()
    except Exception as error:  # A lowering is code of a library, which may raise any error.
        lines = str(error).splitlines() or [type(error).__name__]
        raise NotLoweredError(f"JAX does not lower it alone: {lines[0]}") from None
    try:
        module = inline_calls(read(text))
    except ShardirError as error:
        raise NotLoweredError(f"its StableHLO text: {str(error).splitlines()[0]}") from None
    unknown = unknown_operations(module)
    if unknown:
        first = unknown[0]
        why = f": {first.reason}" if first.reason else ""
        raise NotLoweredError(f"JAX lowers it to {first.operation}, which cannot run here{why}")
    if module.meshes:
        raise NotLoweredError("JAX lowers it to a program with shardings")
    return module.main.body
