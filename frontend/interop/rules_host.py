"""Rules of calls from running programs to functions of the user."""

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
    """The function, as one that has a name and returns NumPy arrays."""

    def called(*args: Any) -> list[Any]:
        return [np.asarray(x) for x in function(*args)]

    called.__name__ = getattr(getattr(function, "callback_func", None), "__name__", name)
    return called


def _sharding(equation: Equation) -> Any:
    """The sharding that the call was given: on one device, or JAX's own, which is refused."""
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

    def shown(*args: Any) -> None:
        primitive.impl(*args, **params)

    shown.__name__ = equation.name
    callback(shown, *equation.tracers)
    return []


@rule("inspect_sharding")
def _told(equation: Equation) -> Any:
    """The callback gets a sharding of ours, when the program is compiled."""
    (x,) = equation.tracers
    inspect_array_sharding(x, callback=equation.params["callback"])
    return []
