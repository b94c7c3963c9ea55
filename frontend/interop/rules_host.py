"""Rules of callbacks from running programs to user functions on the host."""

from typing import Any

import numpy as np

from shardir.frontend.callbacks import io_callback, pure_callback
from shardir.frontend.debugging import callback, inspect_array_sharding
from shardir.frontend.devices import devices
from shardir.frontend.interop.rules import Equation, rule
from shardir.frontend.shardings import SingleDeviceSharding
from shardir.frontend.signature import ShapeDtypeStruct


def _structs(equation: Equation) -> list[ShapeDtypeStruct]:
    return [ShapeDtypeStruct(aval.shape, aval.dtype) for aval in equation.results]


def _called(function: Any, name: str) -> Any:
    """Return the callback as a named function that returns NumPy arrays."""

    def call_function(*args: Any) -> list[Any]:
        return [np.asarray(x) for x in function(*args)]

    call_function.__name__ = getattr(getattr(function, "callback_func", None), "__name__", name)
    return call_function


def _sharding(equation: Equation) -> Any:
    """Return the sharding of the callback: a single device, or a JAX sharding, which is refused."""
    sharding = equation.params.get("sharding")
    if sharding is not None and len(sharding.device_set) == 1:
        return SingleDeviceSharding(devices()[0])
    return sharding


@rule("pure_callback")
def _computed(equation: Equation) -> Any:
    function = _called(equation.params["callback"], "pure_callback")
    method = equation.params["vmap_method"]
    return pure_callback(
        function,
        _structs(equation),
        *equation.tracers,
        sharding=_sharding(equation),
        vmap_method=method,
    )


@rule("io_callback")
def _done(equation: Equation) -> Any:
    function = _called(equation.params["callback"], "io_callback")
    ordered = equation.params["ordered"]
    return io_callback(
        function,
        _structs(equation),
        *equation.tracers,
        sharding=_sharding(equation),
        ordered=ordered,
    )


@rule("debug_callback", "debug_print")
def _shown(equation: Equation) -> Any:
    primitive, params = equation.source.primitive, equation.params

    def run(*args: Any) -> None:
        primitive.impl(*args, **params)

    run.__name__ = equation.name
    callback(run, *equation.tracers)
    return []


@rule("inspect_sharding")
def _told(equation: Equation) -> Any:
    """Call the callback with a sharding of shardir when the program is compiled."""
    (x,) = equation.tracers
    inspect_array_sharding(x, callback=equation.params["callback"])
    return []
