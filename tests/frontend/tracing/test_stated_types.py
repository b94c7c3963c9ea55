"""Shardings that a program requests, on the mesh outside of it."""

import pytest

import shardir as sd
from shardir.frontend.tracing.stated_types import on_outer_mesh
from shardir.sharding import (
    AxisType,
    NamedSharding,
    PartitionSpec as P,
    Sharding,
    SingleDeviceSharding,
)

EXPLICIT = sd.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
AUTO = EXPLICIT.update(axis_types=(AxisType.Auto,) * 2)


@pytest.mark.parametrize(
    ("spec", "on_auto_axes"),
    [(P("x", None), P("x")), (P(None, None), P()), (P(None, "y"), P(None, "y"))],
    ids=str,
)
def test_a_sharding_on_auto_axes_states_no_dimensions_at_its_end(spec: P, on_auto_axes: P) -> None:
    made = on_outer_mesh(NamedSharding(EXPLICIT, spec), AUTO)
    assert isinstance(made, NamedSharding)
    assert (made.mesh, tuple(made.spec)) == (AUTO, tuple(on_auto_axes))
    made = on_outer_mesh(NamedSharding(AUTO, spec), EXPLICIT)
    assert isinstance(made, NamedSharding)
    assert (made.mesh, tuple(made.spec)) == (EXPLICIT, tuple(spec))


@pytest.mark.parametrize(
    "sharding",
    [SingleDeviceSharding(sd.devices()[0]), NamedSharding(sd.make_mesh((4,), ("x",)), P("x"))],
    ids=["a device", "another mesh"],
)
def test_other_shardings_are_unchanged(sharding: Sharding) -> None:
    assert on_outer_mesh(sharding, EXPLICIT) is sharding
