"""Rules of gathers, scatters and window reductions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict

from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.interop.primitive_rules.registry import (
    RULES,
    Equation,
    RuleResult,
    register_rule,
)
from shardir.frontend.lax import data_movement, elementwise, gather_scatter
from shardir.frontend.lax.convolutions.window_combination import combine_windows
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.linear_transpose import linear_transpose
from shardir.ir.operation import Symbol


def _out_of_bounds_mode(mode: object) -> str:
    """Return the mode for indices out of range in shardir's terms."""
    name = str(getattr(mode, "name", mode)).lower()
    return {"fill_or_drop": "fill", "clip": "clip"}.get(name, "promise_in_bounds")


@register_rule("gather")
def _apply_gather(equation: Equation) -> Tracer:
    params = equation.params
    x, indices = equation.tracers
    numbers = params["dimension_numbers"]
    return gather_scatter.gather(
        x,
        indices,
        gather_scatter.GatherDimensionNumbers(
            numbers.offset_dims,
            numbers.collapsed_slice_dims,
            numbers.start_index_map,
            getattr(numbers, "operand_batching_dims", ()),
            getattr(numbers, "start_indices_batching_dims", ()),
        ),
        params["slice_sizes"],
        mode=_out_of_bounds_mode(params["mode"]),
        fill_value=params["fill_value"],
    )


def _register_scatter(name: str, function: Callable[..., Tracer]) -> None:
    def scatter(equation: Equation) -> RuleResult:
        numbers = equation.params["dimension_numbers"]
        return function(
            *equation.tracers,
            gather_scatter.ScatterDimensionNumbers(
                numbers.update_window_dims,
                numbers.inserted_window_dims,
                numbers.scatter_dims_to_operand_dims,
                getattr(numbers, "operand_batching_dims", ()),
                getattr(numbers, "scatter_indices_batching_dims", ()),
            ),
            mode=_out_of_bounds_mode(equation.params["mode"]),
        )

    register_rule(name)(scatter)


_register_scatter("scatter", gather_scatter.scatter)
_register_scatter("scatter-add", gather_scatter.scatter_add)
_register_scatter("scatter-mul", gather_scatter.scatter_mul)
_register_scatter("scatter-min", gather_scatter.scatter_min)
_register_scatter("scatter-max", gather_scatter.scatter_max)


@register_rule("scatter-sub")
def _apply_scatter_sub(equation: Equation) -> RuleResult:
    x, indices, updates = equation.tracers
    return RULES["scatter-add"](replace(equation, operands=[x, indices, elementwise.neg(updates)]))


class WindowParameters(TypedDict):
    """The parameters of windows, by the names of the attributes of operations."""

    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]


def _window_parameters(equation: Equation, rank: int) -> WindowParameters:
    """Return the window parameters of an equation."""
    params, ones = equation.params, (1,) * rank
    return {
        "window": tuple(params["window_dimensions"]),
        "strides": tuple(params["window_strides"]),
        "padding": tuple((low, high) for low, high in params["padding"]),
        "base_dilation": tuple(params.get("base_dilation") or ones),
        "window_dilation": tuple(params.get("window_dilation") or ones),
    }


def _register_window_reduction(name: str, op: str) -> None:
    def window(equation: Equation) -> Tracer:
        (x,) = equation.tracers
        return emit("reduce_window", x, op=Symbol(op), **_window_parameters(equation, x.ndim))

    register_rule(name)(window)


_register_window_reduction("reduce_window_sum", "add")
_register_window_reduction("reduce_window_max", "max")
_register_window_reduction("reduce_window_min", "min")


@register_rule("reduce_window")
def _apply_reduce_window(equation: Equation) -> RuleResult:
    """Emit a window reduction by a function that JAX traced, a product as one operation."""
    count = len(equation.results)
    arrays, firsts = equation.tracers[:count], equation.tracers[count:]
    rank, body, consts = arrays[0].ndim, equation.params["jaxpr"], equation.params["consts"]
    if [each.primitive.name for each in body.eqns] == ["mul"]:
        (product,) = body.eqns
        takes_both = {*map(id, product.invars)} == {*map(id, body.invars)}
        if takes_both and product.outvars == body.outvars:
            windows = _window_parameters(equation, rank)
            result = emit("reduce_window", arrays[0], op=Symbol("mul"), **windows)
            initial = data_movement.broadcast_in_dim(firsts[0], result.shape, ())
            return elementwise.mul(result, initial)

    def combine(first: Sequence[Tracer], second: Sequence[Tracer]) -> tuple[Tracer, ...]:
        return tuple(equation.reader.read_open(body, consts, [*first, *second]))

    return combine_windows(combine, arrays, firsts, **_window_parameters(equation, rank))


def _emit_select_and_scatter(equation: Equation, x: Tracer, source: Tracer) -> Tracer:
    """Select one element of `source` per window, added where the window has its extreme."""
    op = {"ge": "max", "le": "min"}[equation.params["select_prim"].name]
    return emit(
        "select_and_scatter", x, source, op=Symbol(op), **_window_parameters(equation, x.ndim)
    )


@register_rule("select_and_scatter_add")
def _apply_select_and_scatter_add(equation: Equation) -> RuleResult:
    source, x = equation.tracers
    return _emit_select_and_scatter(equation, x, source)


@register_rule("select_and_gather_add")
def _apply_select_and_gather_add(equation: Equation) -> PyTree:
    """Return the elements of the first operand where windows of the second have their extremes."""
    tangents, x = equation.tracers
    like = ShapeDtypeStruct(equation.shape(), equation.results[0].dtype)
    transpose = linear_transpose(lambda source: _emit_select_and_scatter(equation, x, source), like)
    return transpose(tangents)[0]
