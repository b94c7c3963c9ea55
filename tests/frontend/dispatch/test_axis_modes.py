"""`auto_axes` and `explicit_axes` outside of a trace: their meshes, and calls of functions."""

from typing import Any

import numpy as np

from shardir import device_put, jit, make_mesh, typeof
from shardir.frontend.errors import ShardingError
from shardir.sharding import (
    AxisType,
    NamedSharding,
    PartitionSpec as P,
    auto_axes,
    explicit_axes,
    use_mesh,
)
from tests.error_assertions import assert_raises_exactly

AUTO = make_mesh((4,), ("a",))
OTHER = make_mesh((2, 2), ("a", "b"))
EXPLICIT = make_mesh((4,), ("a",), axis_types=(AxisType.Explicit,))
X = np.arange(8, dtype=np.float32)


def test_the_result_of_auto_axes_has_the_stated_sharding_on_explicit_meshes() -> None:
    double = auto_axes(lambda x: x * 2)
    along_a = NamedSharding(AUTO, P("a"))
    np.testing.assert_array_equal(double(X), X * 2)
    replicated = device_put(X, NamedSharding(AUTO, P()))
    assert double(replicated, out_sharding=along_a).sharding == replicated.sharding
    with use_mesh(AUTO):
        assert double(device_put(X, along_a), out_sharding=P()).sharding == along_a
    with use_mesh(EXPLICIT):
        assert double(X).sharding.mesh == EXPLICIT
        for x in (X, device_put(X, NamedSharding(EXPLICIT, P("a")))):
            assert double(x, out_sharding=P("a")).sharding == NamedSharding(EXPLICIT, P("a"))


def test_auto_axes_call_a_function_directly_without_explicit_axes() -> None:
    double = auto_axes(lambda x: float(x) * 2)
    assert double(np.float32(3)) == 6
    with use_mesh(AUTO):
        assert double(np.float32(3)) == 6


def test_a_trace_without_sharding_types_has_the_mesh_of_the_stated_sharding() -> None:
    along_a = NamedSharding(EXPLICIT, P("a"))

    @jit
    def double(x: Any) -> Any:
        return auto_axes(lambda x: x * 2, out_sharding=along_a)(x)

    assert double(X).sharding == along_a
    np.testing.assert_array_equal(double(X), X * 2)


def test_explicit_axes_are_those_of_stated_shardings_or_of_the_entered_mesh() -> None:
    types: list[str] = []

    @explicit_axes
    def double(x: Any) -> Any:
        types.append(str(typeof(x)))
        return x * 2

    along_a = NamedSharding(AUTO, P("a"))
    np.testing.assert_array_equal(double(X, in_sharding=(along_a,)), X * 2)
    with use_mesh(AUTO):
        double(X, in_sharding=P("a"))
    with use_mesh(OTHER):
        double(X, in_sharding=(along_a,))
        double(X, in_sharding=P(("a", "b")))
    assert types == ["float32[8@a]"] * 3 + ["float32[8@(a,b)]"]
    assert_raises_exactly(
        lambda: double(X),
        ShardingError,
        "explicit_axes has no mesh; call it inside `with mesh:`, or give in_sharding= "
        "NamedShardings",
    )


def test_a_trace_without_sharding_types_has_the_mesh_that_it_enters() -> None:
    @jit
    def double(x: Any) -> Any:
        with use_mesh(EXPLICIT):
            return auto_axes(lambda x: x * 2)(x, out_sharding=P("a"))

    assert double(X).sharding == NamedSharding(EXPLICIT, P("a"))


def test_options_of_decorators() -> None:
    types: list[str] = []

    def double(x: Any) -> Any:
        types.append(str(typeof(x)))
        return x * 2

    along_a = NamedSharding(EXPLICIT, P("a"))
    with use_mesh(EXPLICIT):
        decorate = auto_axes(axes="a", out_sharding=P("a"))
        assert decorate(double)(device_put(X, along_a)).sharding == along_a
    with use_mesh(AUTO):
        decorate = explicit_axes(axes="a", in_sharding=(P("a"),))
        np.testing.assert_array_equal(decorate(double)(X), X * 2)
    assert types == ["float32[8]", "float32[8@a]"]
