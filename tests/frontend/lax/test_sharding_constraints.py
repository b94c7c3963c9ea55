"""`with_sharding_constraint` constrains the shardings of values, also in containers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import ArgumentError, IncompatibleDevicesError, ShardingError
from shardir.frontend.lax import api as lax
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec as P
from shardir.frontend.shardings.sharding import NamedSharding

MESH = make_mesh((4, 2), ("x", "y"))
ROWS, COLUMNS = NamedSharding(MESH, P("x", None)), NamedSharding(MESH, P(None, "y"))
X = np.arange(64, dtype=np.float32).reshape(8, 8)


def is_at(array: Any, sharding: NamedSharding) -> bool:
    return bool(array.sharding.is_equivalent_to(sharding, array.ndim))


def test_a_constrained_result_has_the_sharding() -> None:
    def held(x: Any) -> Any:
        return lax.with_sharding_constraint(x * 2, ROWS)

    for call in (jit(held), held):
        made = call(from_numpy(X))
        assert is_at(made, ROWS)
        np.testing.assert_array_equal(np.asarray(made), X * 2)


def test_a_spec_refers_to_the_entered_mesh() -> None:
    with MESH:
        made = jit(lambda x: lax.with_sharding_constraint(x, P(None, "y")))(X)
        assert is_at(made, COLUMNS)
        assert is_at(lax.with_sharding_constraint(from_numpy(X), P("x")), ROWS)


@pytest.mark.parametrize("traced", [True, False])
def test_containers(traced: bool) -> None:
    def program(x: Any) -> Any:
        value = {"a": x, "b": [x + 1, x + 2]}
        one = lax.with_sharding_constraint(value, ROWS)
        each = lax.with_sharding_constraint(value, {"a": COLUMNS, "b": [ROWS, COLUMNS]})
        branch = lax.with_sharding_constraint(value, {"a": COLUMNS, "b": ROWS})
        return one, each, branch

    one, each, branch = (jit(program) if traced else program)(from_numpy(X))
    assert all(is_at(v, ROWS) for v in (one["a"], *one["b"]))
    assert is_at(each["a"], COLUMNS)
    assert is_at(each["b"][0], ROWS)
    assert is_at(each["b"][1], COLUMNS)
    assert all(is_at(v, ROWS) for v in branch["b"])
    np.testing.assert_array_equal(np.asarray(branch["b"][1]), X + 2)


def test_dimensions_inside_jit_may_be_indivisible() -> None:
    odd = np.arange(21, dtype=np.float32).reshape(7, 3)
    made = jit(lambda x: lax.with_sharding_constraint(x, ROWS).sum())(odd)
    assert float(made) == 210


FAULTS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: lax.with_sharding_constraint(x, P("x")), ArgumentError,
     "with_sharding_constraint has P('x',), which names no devices; "
     "write NamedSharding(mesh, P('x',)), or call it inside `with mesh:`"),
    (lambda x: lax.with_sharding_constraint(x, "x"), ArgumentError,
     "with_sharding_constraint has 'x' of type str, which is not a sharding; write "
     "NamedSharding(mesh, PartitionSpec(...))"),
    (lambda x: lax.with_sharding_constraint([x, x], [ROWS, None]), ArgumentError,
     "with_sharding_constraint has the sharding None for an array; state a sharding, or "
     "PartitionSpec(PartitionSpec.UNCONSTRAINED) to let the compiler choose one"),
    (lambda x: lax.with_sharding_constraint([x, x], [ROWS]), ArgumentError,
     "with_sharding_constraint has a list of 1, where the value has a list of 2; give one entry "
     "for the whole subtree, or the same containers"),
    (lambda x: lax.with_sharding_constraint(x[0], ROWS), ShardingError,
     "P('x', None) has 2 entries and the value has rank 1; use a spec with an entry "
     "for each dimension at most"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), FAULTS)
def test_invalid_arguments_are_errors(call: Any, kind: type[Exception], message: str) -> None:
    computes: list[Callable[[], Any]] = [lambda: jit(call)(X), lambda: call(from_numpy(X))]
    for compute in computes:
        with pytest.raises(kind) as caught:
            compute()
        first, *rest = str(caught.value).split("\n")
        assert first == message
        assert "test_sharding_constraints.py" in rest[0]


def test_an_abstract_mesh_refers_to_the_mesh_of_the_arrays() -> None:
    there = NamedSharding(MESH.abstract_mesh, P(None, "y"))
    x = device_put(X, ROWS)
    for call in (lambda x: lax.with_sharding_constraint(x, there), None):
        made = jit(call)(x) if call else lax.with_sharding_constraint(x, there)
        assert is_at(made, COLUMNS)
    for wrong in (X, from_numpy(X)):
        with pytest.raises(ArgumentError) as caught:
            lax.with_sharding_constraint(wrong, there)
        assert str(caught.value).partition("\n")[0] == (
            f"with_sharding_constraint has {there}, which has no devices; the array must be on a "
            "mesh, by a NamedSharding, or the constraint inside of jit"
        )


def test_arrays_on_other_devices_are_not_moved() -> None:
    x = device_put(X, NamedSharding(make_mesh((2,), ("z",)), P()))
    with pytest.raises(IncompatibleDevicesError, match=r"^devices of all arrays of a computation "):
        lax.with_sharding_constraint(x, ROWS)
