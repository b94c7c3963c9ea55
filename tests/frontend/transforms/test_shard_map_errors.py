"""Errors of `shard_map`, with their exact texts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir import (
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    cpu_devices,
    jit,
    lax,
    make_mesh,
    shard_map,
)
from shardir.frontend.errors import (
    ArgumentError,
    AxisNameError,
    IndivisibleError,
    NotAnArrayError,
    ShardingError,
)
from tests.error_assertions import error_line, raw

Array = npt.NDArray[np.float32]
rng = np.random.default_rng(0)
A: Array = rng.standard_normal((8, 8)).astype(np.float32)
WHOLE = P()


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with cpu_devices(8):
        yield make_mesh((4, 2), ("x", "y"))


def agree(made: Any, expected: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(np.asarray(made), np.asarray(expected), tolerance, tolerance)


def f(a: Any) -> Any:
    return a


def test_mismatched_specs_are_errors(mesh: Mesh) -> None:
    def cut(**options: Any) -> str:
        expected = {"mesh": mesh, "in_specs": P("x"), "out_specs": P("x"), **options}
        return error_line(ShardingError, lambda: shard_map(f, **expected)(A))

    assert cut(in_specs=P("z")) == (
        "in_specs of shard_map of f has P('z',) for a, and 'z' is not an axis of the "
        "mesh; its axes are 'x', 'y'"
    )
    assert cut(out_specs=P("z")) == (
        "out_specs of shard_map of f has P('z',) for the result, and 'z' is not an "
        "axis of the mesh; its axes are 'x', 'y'"
    )
    assert cut(in_specs=P("x", "x")) == (
        "in_specs of shard_map of f has P('x', 'x') for a, which names 'x' twice"
    )
    assert cut(in_specs=P("x", None, "y")) == (
        "in_specs of shard_map of f has P('x', None, 'y') for a, which is f32[8, 8]; a "
        "spec has an entry for each dimension at most"
    )
    assert cut(in_specs=P("y"), axis_names={"x"}) == (
        "in_specs of shard_map of f has P('y',) for a, and 'y' is not among the "
        "axis_names, which are 'x'; the compiler shards along it"
    )
    assert cut(axis_names={"z"}) == (
        "axis_names of shard_map of f has 'z', which is not an axis of the mesh; its axes are "
        "'x', 'y'"
    )
    assert cut(in_specs=P(P.UNCONSTRAINED)) == (
        "in_specs of shard_map of f has P(UNCONSTRAINED,) for a; name axes or None "
        "instead of UNCONSTRAINED"
    )


def test_constraints_inside_on_manual_axes_are_errors(mesh: Mesh) -> None:
    def cut(spec: Any, names: Any) -> Any:
        def g(a: Any) -> Any:
            return lax.with_sharding_constraint(a * 2, NamedSharding(mesh, spec))

        return shard_map(g, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names=names)

    agree(jit(cut(P(None, "y"), {"x"}))(A), A * 2)
    assert error_line(ShardingError, lambda: cut(P("x"), {"x"})(A)) == (
        "NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto)), spec=P('x',), "
        "memory_kind=device) is requested for a "
        "value that varies along 'x', which is a manual axis at this line; omit 'x' from the "
        "sharding"
    )


def test_indivisible_dimensions_are_errors(mesh: Mesh) -> None:
    cut = shard_map(f, mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")))
    assert error_line(IndivisibleError, lambda: cut(A[:6])) == (
        "shard_map of f shards dimension 0 of a, which is f32[6, 8], over 'x' of size 4 and 'y' of "
        'size 2, and 6 is not divisible by 8; pad it to 8, replicate it, or pass uneven="pad" to '
        "shard_map"
    )


def test_varying_results_with_replicated_specs_are_errors(mesh: Mesh) -> None:
    def cut(fun: Any, spec: Any = WHOLE) -> str:
        mapped = shard_map(fun, mesh=mesh, in_specs=P("x"), out_specs=spec)
        return error_line(ShardingError, lambda: mapped(A))

    assert cut(f) == (
        "out_specs of shard_map of f has P() for the result, which replicates it along "
        "'x', but it may vary along 'x'; reduce it along 'x' (lax.psum, lax.pmean), name 'x' in "
        "the spec, or pass check_vma=False"
    )
    assert "for result['n'], which replicates it along 'x' and 'y'" in cut(
        lambda a: {"n": lax.axis_index(("x", "y")) + a[0, 0].astype(int)}
    )
    assert "which replicates it along 'y'" in cut(lambda a: a + lax.axis_index("y"), P("x"))
    assert "which replicates it along 'x'" in cut(
        lambda a: lax.while_loop(lambda c: c < a.sum(), lambda c: c + 1, 0.0)
    )
    ok = shard_map(lambda a: lax.scan(lambda c, x: (c + lax.psum(x, "x"), None), a[0] * 0, a)[0],
                   mesh=mesh, in_specs=P("x"), out_specs=P("x"))  # fmt: skip
    assert ok(A).shape == (32,)


def test_invalid_calls_are_errors(mesh: Mesh) -> None:
    assert error_line(ArgumentError, lambda: shard_map(f, in_specs=P(), out_specs=P())(A)) == (
        "shard_map of f has no mesh; pass mesh=, or call it inside `with mesh:`"
    )
    assert error_line(ArgumentError, lambda: shard_map(f, mesh, raw(3), P())) == (
        "in_specs of shard_map of f has 3 of type int; its entries are PartitionSpecs"
    )
    assert error_line(ArgumentError, lambda: shard_map(f, mesh, P())) == (
        "out_specs of shard_map of f is missing; pass a PartitionSpec, or a pytree of them"
    )
    assert error_line(ArgumentError, lambda: shard_map(f, mesh, (P(), P()), P())(A)) == (
        "in_specs of shard_map of f has 2 entries, and it was called with 1 argument; give one "
        "for each, or one spec for all"
    )
    assert error_line(NotAnArrayError, lambda: shard_map(f, mesh, P(), P())("x")) == (
        "shard_map of f shards a, which is 'x' of type str and not an array; let the function "
        "capture it"
    )
    assert error_line(ArgumentError, lambda: shard_map(f, mesh, P(), P())(a=A)) == (
        "shard_map of f has in_specs, which are for positional arguments, and was called with a "
        "by name; pass all arguments by position"
    )
    psum = shard_map(lambda a: lax.psum(a, "z"), mesh=mesh, in_specs=P("x"), out_specs=P())
    assert error_line(AxisNameError, lambda: psum(A)) == (
        "psum is along 'z', which is not bound at this line (bound axes: 'x', 'y'); name one with "
        "axis_name= of vmap or pmap, or in the mesh of shard_map"
    )
    twice = shard_map(lambda a: shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"),
                                          axis_names={"x"})(a),
                      mesh=mesh, in_specs=P("x"), out_specs=P("x"))  # fmt: skip
    assert error_line(ShardingError, lambda: twice(A)) == (
        "shard_map of f is over 'x', and so is an enclosing one; list the other axes of the mesh "
        "in axis_names"
    )
