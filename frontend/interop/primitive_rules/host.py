"""Rules of callbacks from running programs to user functions on the host."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.dispatch.callbacks import io_callback, pure_callback
from shardir.frontend.dispatch.debugging import callback, inspect_array_sharding
from shardir.frontend.interop.primitive_rules.registry import Equation, RuleResult, register_rule
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.devices import devices
from shardir.frontend.shardings.sharding import Sharding, SingleDeviceSharding
from shardir.ir.types import NumpyArray


def _result_structs(equation: Equation) -> list[ShapeDtypeStruct]:
    return [ShapeDtypeStruct(aval.shape, aval.dtype) for aval in equation.results]


def _wrap_callback(
    function: Callable[..., Sequence[npt.ArrayLike]], name: str
) -> Callable[..., list[NumpyArray]]:
    """Return the callback as a named function that returns NumPy arrays."""

    def call_function(*args: object) -> list[NumpyArray]:
        return [np.asarray(x) for x in function(*args)]

    call_function.__name__ = getattr(getattr(function, "callback_func", None), "__name__", name)
    return call_function


def _callback_sharding(equation: Equation) -> Sharding | None:
    """Return the sharding of the callback: a single device, or a JAX sharding, which is refused."""
    sharding: Sharding | None = equation.params.get("sharding")
    if sharding is not None and len(sharding.device_set) == 1:
        return SingleDeviceSharding(devices()[0])
    return sharding


@register_rule("pure_callback")
def _apply_pure_callback(equation: Equation) -> PyTree:
    function = _wrap_callback(equation.params["callback"], "pure_callback")
    method = equation.params["vmap_method"]
    return pure_callback(
        function,
        _result_structs(equation),
        *equation.tracers,
        sharding=_callback_sharding(equation),
        vmap_method=method,
    )


@register_rule("io_callback")
def _apply_io_callback(equation: Equation) -> PyTree:
    function = _wrap_callback(equation.params["callback"], "io_callback")
    ordered = equation.params["ordered"]
    return io_callback(
        function,
        _result_structs(equation),
        *equation.tracers,
        sharding=_callback_sharding(equation),
        ordered=ordered,
    )


@register_rule("debug_callback", "debug_print")
def _apply_debug_callback(equation: Equation) -> RuleResult:
    primitive, params = equation.source.primitive, equation.params

    def run(*args: object) -> None:
        primitive.impl(*args, **params)

    run.__name__ = equation.name
    callback(run, *equation.tracers)
    return []


@register_rule("inspect_sharding")
def _apply_inspect_sharding(equation: Equation) -> RuleResult:
    """Call the callback with a sharding of shardir when the program is compiled."""
    (x,) = equation.tracers
    inspect_array_sharding(x, callback=equation.params["callback"])
    return []
