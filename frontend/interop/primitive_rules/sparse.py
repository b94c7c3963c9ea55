"""Rules of sparse matrices of jax.experimental.sparse that JAX lowers to a library for CPUs.

The other primitives of sparse matrices are read as the operations to which JAX lowers them.
"""

from collections.abc import Sequence

import jax

from shardir.frontend.interop.jax_tracing import jax_struct_of, trace_to_jaxpr
from shardir.frontend.interop.primitive_rules.registry import Equation, register_rule
from shardir.frontend.tracing.tracer import Tracer


@register_rule("bcsr_dot_general")
def _apply_bcsr_dot_general(equation: Equation) -> list[Tracer]:
    """Multiply as in the format BCOO, whose product JAX lowers to a gather and a scatter."""
    # Slow to import; programs with such matrices have imported it.
    from jax.experimental import sparse

    params = equation.params

    def multiply(
        data: jax.Array, indices: jax.Array, indptr: jax.Array, other: jax.Array
    ) -> jax.Array:
        matrix = sparse.BCSR((data, indices, indptr), shape=params["lhs_spinfo"].shape)
        return sparse.bcoo_dot_general(
            matrix.to_bcoo(),
            other,
            dimension_numbers=params["dimension_numbers"],
            preferred_element_type=params["preferred_element_type"],
        )

    tracers: Sequence[Tracer] = equation.tracers
    program, _ = trace_to_jaxpr(multiply, [jax_struct_of(x) for x in tracers])
    return equation.reader.read(program, tracers)
