"""The `k` best of a dimension, under the names of `jax.lax` for those that may miss some.

No one is missed here: CPUs have no instruction that is quicker for not looking everywhere.
"""

from typing import Any

from shardir.frontend.lax.reductions import top_k


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:
    """The `k` largest along `reduction_dimension`, largest first, and their i32 indices.

    They are exact, whatever `recall_target` would do with; the other options change nothing.
    """
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
    """The `k` smallest along `reduction_dimension`, smallest first, and their i32 indices.

    See `approx_max_k`.
    """
    from shardir.frontend import numpy as snp

    values, places = top_k(snp.negative(operand), k, axis=reduction_dimension)
    return snp.negative(values), places
