"""The manual axes in types inside of `shard_map`: those of JAX 0.10.2."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import ArgumentError
from shardir.sharding import (
    AxisType,
    ManualAxisType,
    NamedSharding,
    PartitionSpec as P,
    get_mesh,
    use_mesh,
)

X = np.arange(16, dtype="float32").reshape(8, 2)


@pytest.fixture(autouse=True, params=[AxisType.Explicit, AxisType.Auto])
def mesh(request: pytest.FixtureRequest) -> Iterator[sd.Mesh]:
    mesh = sd.make_mesh((4, 2), ("x", "y"), axis_types=(request.param,) * 2)
    with use_mesh(mesh):
        yield mesh


def types_inside(fun: Callable[[Any], Any], spec: Any, **options: Any) -> list[Any]:
    found: list[Any] = []

    def run(shard: Any) -> Any:
        made = fun(shard)
        found.extend(sd.typeof(each) for each in (shard, made))
        return shard

    placed = sd.device_put(X, NamedSharding(get_mesh(), spec))
    sd.shard_map(run, in_specs=spec, out_specs=spec, **options)(placed)
    return found


def stopped_sum(x: Any) -> Any:
    """Return a sum that has the derivative 0."""
    return snp.sum(lax.stop_gradient(x))


@pytest.mark.parametrize(
    ("fun", "spec", "types"),
    [
        (lambda a: a + 1, P("x"), ("float32[2,2]{V:x}", "float32[2,2]{V:x}")),
        (lambda a: a, P("x", "y"), ("float32[2,1]{V:(x,y)}",) * 2),
        (lambda a: lax.psum(a, "x"), P("x", "y"), ("float32[2,1]{V:(x,y)}", "float32[2,1]{V:y}")),
        (lambda a: lax.pcast(a, "x", to="varying"), P(), ("float32[8,2]", "float32[8,2]{V:x}")),
        (lambda a: lax.axis_index("y"), P("x"), ("float32[2,2]{V:x}", "int32[]{V:y}")),
        (lambda a: lax.fori_loop(0, 2, lambda i, c: c + lax.axis_index("y"), a), P("x"),
         ("float32[2,2]{V:x}", "float32[2,2]{V:(x,y)}")),
        (snp.zeros_like, P("x"), ("float32[2,2]{V:x}",) * 2),
        (lambda a: snp.ones_like(a, shape=(3,)), P("x", "y"),
         ("float32[2,1]{V:(x,y)}", "float32[3]{V:(x,y)}")),
        (lambda a: snp.full_like(a, 2, "int32"), P("x"), ("float32[2,2]{V:x}", "int32[2,2]{V:x}")),
        (snp.empty_like, P(), ("float32[8,2]",) * 2),
        (lambda a: snp.full_like(a, lax.axis_index("y")), P("x"),
         ("float32[2,2]{V:x}", "float32[2,2]{V:(x,y)}")),
        (lambda a: lax.full_like(a, 1.0, shape=(2,)), P("x"),
         ("float32[2,2]{V:x}", "float32[2]{V:x}")),
        (sd.grad(lambda a: snp.sum(snp.ones(3))), P("x"), ("float32[2,2]{V:x}",) * 2),
        (lambda a: lax.pcast(a, "y", to="varying"), P("x"),
         ("float32[2,2]{V:x}", "float32[2,2]{V:(x,y)}")),
        (lambda a: sd.vjp(stopped_sum, a)[1](lax.pcast(snp.ones(()), "x", to="varying"))[0],
         P("x"), ("float32[2,2]{V:x}",) * 2),
        (lambda a: sd.vjp(lambda b: snp.ones(2), a)[1](snp.ones(2))[0], P("x", "y"),
         ("float32[2,1]{V:(x,y)}",) * 2),
        (lambda a: sd.jvp(stopped_sum, (a,), (a,))[1], P("x"),
         ("float32[2,2]{V:x}", "float32[]{V:x}")),
        (lambda a: sd.linearize(stopped_sum, a)[1](a), P("x"),
         ("float32[2,2]{V:x}", "float32[]{V:x}")),
        (lambda a: sd.linearize(lambda b: snp.ones(2), a)[1](a), P("x"),
         ("float32[2,2]{V:x}", "float32[2]")),
    ],
)  # fmt: skip
def test_types_state_the_axes_along_which_values_vary(
    fun: Callable[[Any], Any], spec: Any, types: tuple[str, str]
) -> None:
    found = types_inside(fun, spec)
    assert tuple(map(str, found)) == types
    varying = {axis for axis in "xy" if axis in types[1].partition("{V:")[2]}
    assert found[1].manual_axis_type == found[1].mat == ManualAxisType(varying=frozenset(varying))
    assert found[1].to_tangent_aval().mat == found[1].mat or found[1].dtype == np.int32


@pytest.mark.parametrize("axes", ["x", ("x", "y"), ("y", "x")])
def test_a_varying_value_does_not_become_varying(axes: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        types_inside(partial(lax.pcast, axis_name=axes, to="varying"), P("x"))
    assert str(caught.value).partition("\n")[0] == (
        "pcast makes a value vary along 'x', and float32[2,2]{V:x} varies along it already; name "
        "the other axes"
    )
    unchecked = types_inside(
        partial(lax.pcast, axis_name=axes, to="varying"), P("x"), check_vma=False
    )
    assert str(unchecked[1]) == "float32[2,2]"


def test_values_without_checks_and_outside_have_no_manual_axes() -> None:
    assert str(types_inside(lambda a: a + 1, P("x"), check_vma=False)[1]) == "float32[2,2]"
    assert sd.typeof(X).manual_axis_type == ManualAxisType()
    assert ManualAxisType().vur == frozenset()


def test_an_axis_occurs_once() -> None:
    assert ManualAxisType(varying=frozenset("x"), unreduced=frozenset("y")).vur == {"x", "y"}
    for other in ("unreduced", "reduced"):
        with pytest.raises(ArgumentError) as caught:
            ManualAxisType(varying=frozenset("x"), **{other: frozenset("x")})
        text = str(caught.value).partition("\n")[0]
        ending = "a value varies along an axis, or is unreduced or reduced along it"
        assert text.endswith(f" names 'x' twice; {ending}")


def test_values_of_shards_have_no_unreduced_and_no_reduced_axes() -> None:
    for to, remedy in (
        ("unreduced", "add them with lax.psum or lax.psum_scatter, or return them with an "
         "additional dimension that the axis shards, and sum it outside with out_sharding="),
        ("reduced", "state reduced axes outside with sharding.reshard, and add gradients with "
         "lax.psum"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError) as caught:
            types_inside(partial(lax.pcast, axis_name="x", to=to), P("x"))
        assert str(caught.value).partition("\n")[0] == (
            f"pcast cannot make a value {to}: inside of shard_map, values vary along an axis or "
            f"are equal; {remedy}"
        )
