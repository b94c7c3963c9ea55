"""The mesh of a traced call: the entered one with Explicit axes, or that of the arguments."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import device_put, devices, jit, make_mesh, typeof
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.sharding import AxisType, NamedSharding, PartitionSpec as P, use_mesh

AUTO = make_mesh((4,), ("a",))
EXPLICIT = make_mesh((4,), ("a",), axis_types=(AxisType.Explicit,))
X = np.arange(8, dtype=np.float32)
DEVICE = devices()[5]


@pytest.mark.parametrize("mesh", [None, AUTO, EXPLICIT], ids=["none", "auto", "explicit"])
def test_an_entered_mesh_determines_types_unless_arguments_are_elsewhere(mesh: Any) -> None:
    is_explicit = mesh is EXPLICIT
    cases: list[tuple[Any, str, Any]] = [
        (X, "float32[8]", NamedSharding(EXPLICIT, P(None)) if is_explicit else None),
        (device_put(X, DEVICE), "float32[8]", device_put(X, DEVICE).sharding),
        (
            device_put(X, NamedSharding(AUTO, P("a"))),
            "float32[8]",
            NamedSharding(EXPLICIT, P(None)) if is_explicit else NamedSharding(AUTO, P("a")),
        ),
        (
            device_put(X, NamedSharding(EXPLICIT, P("a"))),
            "float32[8@a]",
            NamedSharding(EXPLICIT, P("a")),
        ),
    ]
    for x, text, sharding in cases:
        types: list[str] = []

        def add(x: Any, types: list[str] = types) -> Any:
            types.append(str(typeof(x)))
            return x + snp.ones(8)

        with nullcontext() if mesh is None else use_mesh(mesh):
            made = jit(add)(x)
        np.testing.assert_array_equal(made, X + 1)
        assert types == [text]
        assert sharding is None or made.sharding == sharding


class _NumPyLike:
    def __array__(self) -> np.ndarray:
        return X


class _JaxLike:
    def __jax_array__(self) -> np.ndarray:
        return X


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (_NumPyLike(), True),
        (_JaxLike(), True),
        (_NumPyLike, False),
        (_JaxLike, False),
        (object(), False),
    ],
)
def test_objects_with_an_array_are_traced_but_not_their_classes(
    leaf: object, expected: bool
) -> None:
    assert is_array_like(leaf) is expected
