"""`approx_max_k` and `approx_min_k` of `jax.lax`, which are exact here.

CPUs have no instruction for which an approximate search would be faster.
"""

from shardir.errors import OperationTypeError
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.lax.reductions import top_k
from shardir.frontend.numpy.elementwise import arithmetic
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import operand_dtype
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import FLOATS


@with_argument_errors
def approx_max_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Tracer]:
    """Return the `k` largest floats along `reduction_dimension` and their i32 indices.

    They are in descending order and exact, for every `recall_target`; the other options have no
    effect.
    """
    _check_floats("approx_max_k", operand)
    return top_k(operand, k, axis=reduction_dimension)


@with_argument_errors
def approx_min_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Tracer]:
    """Return the `k` smallest floats along `reduction_dimension` and their i32 indices.

    They are in ascending order; see `approx_max_k`.
    """

    _check_floats("approx_min_k", operand)
    values, indices = top_k(arithmetic.negative(operand), k, axis=reduction_dimension)
    return [arithmetic.negative(values), indices]


def _check_floats(name: str, operand: ArrayLike) -> None:
    """Raise `OperationTypeError` unless the operand has floats, as JAX does.

    The smallest integer and unsigned integers have no negative by which to sort.
    """
    kind = operand_dtype(operand)[0]
    if kind not in FLOATS:
        text = f"{name} takes floats, got {kind}; lax.top_k takes integers, too"
        raise OperationTypeError(with_location(text))
