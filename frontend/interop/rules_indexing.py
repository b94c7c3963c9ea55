"""Rules of gathers, scatters and window reductions."""

from dataclasses import replace
from typing import Any

from shardir.frontend import lax
from shardir.frontend.interop.rules import RULES, Equation, rule
from shardir.frontend.linearity import linear_transpose
from shardir.frontend.signature import ShapeDtypeStruct
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol


def _mode(mode: Any) -> str:
    """Return the mode for indices out of range in shardir's terms."""
    name = str(getattr(mode, "name", mode)).lower()
    return {"fill_or_drop": "fill", "clip": "clip"}.get(name, "promise_in_bounds")


@rule("gather")
def _gathered(equation: Equation) -> Any:
    params = equation.params
    x, indices = equation.tracers
    numbers = params["dimension_numbers"]
    return lax.gather(
        x,
        indices,
        lax.GatherDimensionNumbers(
            numbers.offset_dims,
            numbers.collapsed_slice_dims,
            numbers.start_index_map,
            getattr(numbers, "operand_batching_dims", ()),
            getattr(numbers, "start_indices_batching_dims", ()),
        ),
        params["slice_sizes"],
        mode=_mode(params["mode"]),
        fill_value=params["fill_value"],
    )


def _scattered(name: str, function: Any) -> None:
    def scatter(equation: Equation) -> Any:
        numbers = equation.params["dimension_numbers"]
        return function(
            *equation.tracers,
            lax.ScatterDimensionNumbers(
                numbers.update_window_dims,
                numbers.inserted_window_dims,
                numbers.scatter_dims_to_operand_dims,
                getattr(numbers, "operand_batching_dims", ()),
                getattr(numbers, "scatter_indices_batching_dims", ()),
            ),
            mode=_mode(equation.params["mode"]),
        )

    rule(name)(scatter)


_scattered("scatter", lax.scatter)
_scattered("scatter-add", lax.scatter_add)
_scattered("scatter-mul", lax.scatter_mul)
_scattered("scatter-min", lax.scatter_min)
_scattered("scatter-max", lax.scatter_max)


@rule("scatter-sub")
def _subtracted(equation: Equation) -> Any:
    x, indices, updates = equation.tracers
    return RULES["scatter-add"](replace(equation, operands=[x, indices, lax.neg(updates)]))


def _window(equation: Equation, rank: int) -> dict[str, Any]:
    """Return the window parameters as attributes of an operation."""
    params, ones = equation.params, (1,) * rank
    return {
        "window": tuple(params["window_dimensions"]),
        "strides": tuple(params["window_strides"]),
        "padding": tuple((low, high) for low, high in params["padding"]),
        "base_dilation": tuple(params.get("base_dilation") or ones),
        "window_dilation": tuple(params.get("window_dilation") or ones),
    }


def _windowed(name: str, op: str) -> None:
    def window(equation: Equation) -> Any:
        (x,) = equation.tracers
        return emit("reduce_window", x, op=Symbol(op), **_window(equation, x.ndim))

    rule(name)(window)


_windowed("reduce_window_sum", "add")
_windowed("reduce_window_max", "max")
_windowed("reduce_window_min", "min")


@rule("reduce_window")
def _windowed_by(equation: Equation) -> Any:
    """Emit a window reduction by a multiplication; refuse other functions."""
    x, init = equation.tracers
    body = equation.params["jaxpr"]
    body = getattr(body, "jaxpr", body)
    if [each.primitive.name for each in body.eqns] != ["mul"]:
        raise equation.refuse("a function of its own", "use one of add, mul, max and min")
    result = emit("reduce_window", x, op=Symbol("mul"), **_window(equation, x.ndim))
    return lax.mul(result, lax.broadcast_in_dim(init, result.shape, ()))


def _chosen(equation: Equation, x: Tracer, source: Any) -> Any:
    """Select one element of `source` per window, added where the window has its extreme."""
    op = {"ge": "max", "le": "min"}[equation.params["select_prim"].name]
    return emit("select_and_scatter", x, source, op=Symbol(op), **_window(equation, x.ndim))


@rule("select_and_scatter_add")
def _scattered_back(equation: Equation) -> Any:
    source, x = equation.tracers
    return _chosen(equation, x, source)


@rule("select_and_gather_add")
def _gathered_there(equation: Equation) -> Any:
    """Return the elements of the first operand where windows of the second have their extremes."""
    tangents, x = equation.tracers
    like = ShapeDtypeStruct(equation.shape(), equation.results[0].dtype)
    transpose = linear_transpose(lambda source: _chosen(equation, x, source), like)
    return transpose(tangents)[0]
