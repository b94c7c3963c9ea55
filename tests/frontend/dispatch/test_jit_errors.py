"""Errors of `jit`, with their exact texts."""

from typing import Any

import numpy as np
import pytest

from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import (
    ArgumentError,
    IncompatibleDevicesError,
    IndivisibleError,
    NotAnArrayError,
    ShardingError,
)
from shardir.frontend.shardings.devices import devices
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.sharding import NamedSharding
from tests.error_assertions import first_line

MESH = make_mesh((4, 2), ("data", "model"))
NUMBERS = np.arange(32, dtype=np.float32).reshape(8, 4)


def named(*spec: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*spec))


def test_unknown_parameters_are_errors() -> None:
    def f(x: Any, y: Any) -> Any:
        return x

    with pytest.raises(ArgumentError) as caught:
        jit(f, static_argnums=2)
    assert first_line(caught) == (
        "static_argnums of f has 2, but its positional parameters are 2 (x, y)"
    )
    with pytest.raises(ArgumentError, match="static_argnames of f has 'z', but its parameters are"):
        jit(f, static_argnames="z")
    with pytest.raises(ArgumentError, match="donate_argnums of f has 'y', which is not a number"):
        jit(f, donate_argnums=("y",))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="argument 0 of f is both static and donated"):
        jit(f, static_argnums=0, donate_argnums=0)
    with pytest.raises(ArgumentError, match="jit takes a function, got 3"):
        jit(3)  # type: ignore[call-overload]


def test_arguments_that_cannot_be_traced_are_errors() -> None:
    f = jit(lambda x, config: x)
    with pytest.raises(NotAnArrayError) as caught:
        f(NUMBERS, {"mode": "up"})
    assert first_line(caught) == (
        "argument config.mode of lambda is 'up' of type str, which is not an array; make it static "
        "(static_argnums, static_argnames), or register its class as a container (shardir.tree)"
    )
    static = jit(lambda x, n: x, static_argnums=1)
    with pytest.raises(ArgumentError) as unhashable:
        static(NUMBERS, {1})
    assert first_line(unhashable) == (
        "static argument n of lambda is {1} of type set, which cannot be hashed; pass a tuple or "
        "another hashable value, or do not make it static"
    )

    class Incomparable:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise NotImplementedError("no comparison")

    static(NUMBERS, Incomparable())
    with pytest.raises(ArgumentError) as incomparable:
        static(NUMBERS, Incomparable())
    assert first_line(incomparable) == (
        "static arguments of lambda should be comparable using __eq__, which raised "
        "NotImplementedError: no comparison"
    )


def test_argument_numbers_of_variadic_functions_may_exceed_the_arguments() -> None:
    assert jit(lambda x, *rest: x, static_argnums=9)(2) == 2


def test_shardings_that_do_not_match_arguments_are_errors() -> None:
    x = device_put(NUMBERS, named("model"))
    with pytest.raises(ShardingError, match=r"argument x of .* in_shardings requests .*; move it"):
        jit(lambda x: x, in_shardings=named("data"))(x)
    with pytest.raises(IndivisibleError, match=r"^argument x of lambda: dimension 0 of shape"):
        jit(lambda x: x, in_shardings=named("data"))(NUMBERS[:6])
    with pytest.raises(IndivisibleError, match=r"^result 1 of lambda: dimension 0 of shape"):
        jit(lambda x: (x, x), out_shardings=(None, named("data")))(NUMBERS[:6])
    with pytest.raises(ArgumentError, match=r"out_shardings of lambda has a tuple of 2, where"):
        jit(lambda x: x, out_shardings=(named(), named()))(NUMBERS)
    with pytest.raises(ArgumentError, match=r"in_shardings has 'data' of type str, which is no"):
        jit(lambda x: x, in_shardings=("data",))
    with pytest.raises(ArgumentError, match="called with x by name; pass all arguments by posit"):
        jit(lambda x: x, in_shardings=named("data"))(x=NUMBERS)


def test_an_error_names_conflicting_devices() -> None:
    x = device_put(NUMBERS, named("data"))
    order = [devices()[i] for i in (0, 1, 2, 3, 6, 7, 4, 5)]
    y = device_put(NUMBERS, PositionalSharding(order).reshape(8, 1))

    def f(a: Any, b: Any) -> Any:
        return a["x"] + b

    with pytest.raises(IncompatibleDevicesError) as caught:
        jit(f)({"x": x}, y)
    assert str(caught.value).partition("\n")[0] == (
        "devices of all arrays of a computation should be the same, in the same order: argument "
        "a.x of f has device ids [0, 1, 2, 3, 4, 5, 6, 7] on platform CPU, and argument b of f has "
        "device ids [0, 1, 2, 3, 6, 7, 4, 5] on platform CPU; move one to the devices of the other "
        "with device_put"
    )


def test_functions_must_take_the_arguments_of_the_call() -> None:
    f = jit(lambda x, y=1: x + y)
    for call, why in (
        (lambda: f(), "missing a required argument: 'x'"),
        (lambda: f(1, 2, 3), "too many positional arguments"),
        (lambda: f(1, z=2), "got an unexpected keyword argument 'z'"),
        (lambda: f.lower(), "missing a required argument: 'x'"),
        (lambda: jit(lambda x: f(x, z=x))(1), "got an unexpected keyword argument 'z'"),
    ):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert first_line(caught) == f"lambda takes (x, y): {why}"
