"""Rules of ragged contractions, whose group sizes are data, and of approximate top-k."""

from shardir.frontend.interop.primitive_rules.product_algorithms import algorithm_of_product
from shardir.frontend.interop.primitive_rules.registry import Equation, RuleResult, register_rule
from shardir.frontend.lax import contraction, data_movement, elementwise, reductions
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.tracer import Tracer


@register_rule("ragged_dot_general")
def _apply_ragged_dot(equation: Equation) -> Tracer:
    """Contract each group, with the rows of all other groups set to zero."""
    x, y, sizes = equation.tracers
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (contracted, others), (batch, _) = numbers.dot_dimension_numbers
    (rows,) = numbers.lhs_ragged_dimensions
    offset = equation.params.get("group_offset")
    if batch or sizes.ndim != 1 or offset is not None:
        raise equation.unsupported_form_error(
            "batches or an offset", "map it over the batch, or write an einsum"
        )
    parts = _mask_groups(x, sizes, rows)
    inner = tuple(dim + 1 for dim in contracted)
    group = tuple(numbers.rhs_group_dimensions)
    dims = ((*((0,) if group else ()), *inner), (*group, *others)), ((), ())
    result_dtype = equation.results[0].dtype
    algorithm = algorithm_of_product(equation.params["precision"])
    return contraction.dot_general(parts, y, dims, algorithm, result_dtype)


def _mask_groups(x: Tracer, sizes: Tracer, rows: int) -> Tracer:
    """Return, per group in a leading dimension, `x` with zeros in the rows of other groups."""
    shape = (sizes.shape[0], *x.shape)
    ends = reductions.cumsum(sizes, 0)
    number = data_movement.broadcasted_iota(sizes.dtype, shape, rows + 1)
    first, last = (
        data_movement.broadcast_in_dim(e, shape, (0,)) for e in (elementwise.sub(ends, sizes), ends)
    )
    in_group = elementwise.bitwise_and(elementwise.ge(number, first), elementwise.lt(number, last))
    repeated = data_movement.broadcast_in_dim(x, shape, tuple(range(1, len(shape))))
    result: Tracer = elementwise.mul(repeated, convert(in_group, x.value.type.dtype))
    return result


@register_rule("approx_top_k")
def _apply_approx_top_k(equation: Equation) -> RuleResult:
    """Return the exact largest (or smallest) elements, as JAX does on CPUs."""
    (x,) = equation.tracers
    params = equation.params
    if not params["aggregate_to_topk"]:
        raise equation.unsupported_form_error("aggregate_to_topk=False", "leave it out")
    largest = params["is_max_k"]
    values, places = reductions.top_k(
        x if largest else elementwise.neg(x), params["k"], axis=params["reduction_dimension"]
    )
    return [values if largest else elementwise.neg(values), places]
