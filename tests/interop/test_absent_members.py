"""The public members of the classes of an installed JAX, compared with those of shardir."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import jax
import jax.export
import numpy as np
import pytest
from jax import numpy as jnp

import shardir as sd
from shardir import numpy as snp
from shardir.frontend.absent_members import ABSENT_MEMBERS, WithAbsentMembers, absence_of_member
from tests.error_assertions import raw

X = np.ones((8, 4), np.float32)
REASONED_ELSEWHERE = {"At": {"array"}, "IndexedUpdate": {"array", "index"}}
"""Members of the objects of `x.at`, whose errors name what can be written instead."""


def double(x: Any) -> Any:
    return x * 2


def trace(package: Any, x: Any) -> Any:
    found = []
    package.jit(lambda x: found.append(x))(x)
    return found[0]


def make_objects(package: Any, arrays: Any) -> Iterator[Any]:
    x = arrays.ones((8, 4))
    mesh = package.make_mesh((1, 1), ("x", "y"))
    jitted = package.jit(double)
    yield from (x, trace(package, x), package.random.key(0), x.at, x.at[0])
    yield from (mesh, mesh.abstract_mesh, package.P("x"))
    yield package.NamedSharding(mesh, package.P("x"))
    yield package.sharding.SingleDeviceSharding(package.devices()[0])
    yield from (jitted, jitted.trace(X), jitted.lower(X), jitted.lower(X).compile())
    yield jitted.lower(X).compile().memory_analysis()
    yield package.export.export(jitted)(X)
    yield from (package.devices()[0], package.ShapeDtypeStruct((2,), np.float32))
    yield from (package.typeof(x), x.addressable_shards[0])
    yield from (package.custom_jvp(double), package.custom_vjp(double))
    yield package.custom_batching.custom_vmap(double)
    yield from (package.tree.structure([1]), package.tree_util.Partial(double))
    yield package.vjp(double, 1.0)[1]


def public_members(value: object) -> set[str]:
    return {name for name in dir(value) if name[0] != "_"}


def find_missing_members() -> dict[type, set[str]]:
    theirs = make_objects(jax, jnp)
    found: dict[type, set[str]] = {}
    for mine, other in zip(make_objects(sd, snp), theirs, strict=True):
        missing = public_members(other) - public_members(mine)
        found.setdefault(type(mine), set()).update(missing)
    return found


MISSING = find_missing_members()


@pytest.mark.parametrize("kind", MISSING, ids=lambda kind: kind.__name__)
def test_each_missing_member_has_a_reason(kind: type) -> None:
    ignored = REASONED_ELSEWHERE.get(kind.__name__, set())
    without = {name for name in MISSING[kind] - ignored if absence_of_member(kind, name) is None}
    assert not without


def test_each_reason_is_for_a_missing_member() -> None:
    listed = {
        (name, member)
        for name, reasons in ABSENT_MEMBERS.items()
        for member in chain.from_iterable(names.split() for names in reasons.values())
    }
    missing = {(kind.__name__, name) for kind, names in MISSING.items() for name in names}
    assert listed <= missing


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (
            lambda: snp.ones(3).unsafe_buffer_pointer,
            "'Array' object has no attribute 'unsafe_buffer_pointer'; share the memory of the "
            "array by the protocol of numpy.from_dlpack",
        ),
        (
            lambda: raw(sd.devices()[0]).client,
            "'Device' object has no attribute 'client'; it serves JAX's own implementation; leave "
            "it out",
        ),
        (
            lambda: raw(sd.jit(double).lower(X)).compiler_ir,
            "'Lowered' object has no attribute 'compiler_ir'; call as_text, whose dialect is "
            "'stablehlo' or another format",
        ),
        (
            lambda: raw(sd.jit(double).lower(X).compile()).input_formats,
            "'Compiled' object has no attribute 'input_formats'; the backends choose the layouts "
            "of buffers; input_shardings and output_shardings state the shardings",
        ),
    ],
)
def test_an_error_states_the_reason_and_the_line(read: Callable[[], Any], text: str) -> None:
    with pytest.raises(AttributeError) as caught:
        read()
    first, _, where = str(caught.value).partition("\n")
    assert first == text
    assert "test_absent_members.py:" in where


def test_an_unknown_member_has_the_error_of_python() -> None:
    mesh: Any = sd.make_mesh((1,), ("x",))
    with pytest.raises(AttributeError, match=r"^'Mesh' object has no attribute 'nonsense'$"):
        _ = mesh.nonsense
    assert not hasattr(mesh, "__array__")


def test_an_error_of_a_property_propagates_unchanged() -> None:
    """Python looks the attribute up again after an `AttributeError` inside of a property."""

    class Broken(WithAbsentMembers):
        @property
        def value(self) -> Any:
            return ().missing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match=r"^'tuple' object has no attribute 'missing'$"):
        _ = Broken().value
