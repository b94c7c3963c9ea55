"""The `k` best of a dimension, under the names of `jax.lax` for those that may miss some.

No one is missed here: CPUs have no instruction that is quicker for not looking everywhere.
"""

from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.lax.reductions import top_k
from shardir.frontend.locations import point
from shardir.frontend.operands import kind_of
from shardir.types import FLOATS


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:
    """The `k` largest floats along `reduction_dimension`, largest first, and their i32 indices.

    They are exact, however few `recall_target` asks for; the other options change nothing.
    """
    _check_floats("approx_max_k", operand)
    values, places = top_k(operand, k, axis=reduction_dimension)
    return values, places


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:
    """The `k` smallest floats along `reduction_dimension`, smallest first, and their i32 indices.

    See `approx_max_k`.
    """
    from shardir.frontend import numpy as snp

    _check_floats("approx_min_k", operand)
    values, places = top_k(snp.negative(operand), k, axis=reduction_dimension)
    return snp.negative(values), places


def _check_floats(name: str, operand: Any) -> None:
    """As in JAX; the least integer, and unsigned ones, have no negative to be sorted by."""
    kind = kind_of(operand)[0]
    if kind not in FLOATS:
        text = f"{name} takes floats, got {kind}; lax.top_k takes integers, too"
        raise OperationTypeError(point(text))
