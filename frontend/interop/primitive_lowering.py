"""Primitives without a rule, as the StableHLO operations to which JAX lowers them.

JAX lowers the primitive alone, for CPUs; the reader of StableHLO reads that text, and its
operations become part of the current trace. The derivative is the one that JAX defines for the
primitive.
"""

from collections.abc import Sequence

import jax

from shardir.errors import ShardirError
from shardir.frontend.interop.jax_tracing import apply_settings_to_jax, jax_struct_of
from shardir.frontend.interop.primitive_rules.derivatives import (
    IsolatedEquation,
    apply_with_jax_jvp,
)
from shardir.frontend.interop.primitive_rules.registry import Equation
from shardir.frontend.tracing.trace import append_block, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.module import Block
from shardir.ops.opaque import unknown_operations
from shardir.stablehlo.reader import read


class NotLoweredError(Exception):
    """JAX does not lower a primitive to operations that the reader supports; states the reason."""


def apply_lowered(equation: Equation) -> list[Tracer]:
    """Return the results of a primitive; raise `NotLoweredError` if it has no such lowering."""
    isolated = IsolatedEquation(equation)
    body = _lower(isolated)

    def primal(*args: Tracer) -> tuple[Tracer, ...]:
        values = append_block(body, isolated.all_values(args), Block((), (), ()))
        return tuple(map(wrap_value, values))

    results: Sequence[Tracer] = apply_with_jax_jvp(isolated, primal)
    return list(results)


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
        module = read(text)
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
