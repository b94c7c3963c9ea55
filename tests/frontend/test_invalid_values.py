"""Errors of values of unsupported types: the error states the value and the parameter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.distributed
import shardir.experimental.multihost_utils
import shardir.optim
import shardir.scipy.linalg
import shardir.testing
from shardir.errors import OperationTypeError, PipelineError, ShardirError
from shardir.frontend.errors import (
    ArgumentError,
    AxisError,
    IndexingError,
    MeshError,
    NotAnArrayError,
    ShapeError,
    ShardingError,
    StructureError,
)
from shardir.sharding import AbstractMesh, PositionalSharding
from tests.error_assertions import assert_raises_exactly

sd: Any = shardir
lax: Any = shardir.lax
snp: Any = shardir.numpy
optim: Any = shardir.optim
linalg: Any = shardir.scipy.linalg
X = np.ones(3, np.float32)
MESH = sd.make_mesh((1,), ("x",))
WHOLE = sd.NamedSharding(MESH, sd.P())


def updated(made: Any, updates: Any, state: Any = (), params: Any = None) -> Any:
    return made.update(updates, state, params)


TRACE = optim.trace(0.9)
CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (lambda: lax.top_k(X, 1.5), ArgumentError, "k of top_k must be an integer, got 1.5"),
    (lambda: lax.approx_max_k(X, 1.5), ArgumentError, "k of top_k must be an integer, got 1.5"),
    (lambda: snp.frexp(1j), OperationTypeError, "frexp takes real numbers, got c64"),
    (
        lambda: snp.zeros(str),
        ShapeError,
        "shape (<class 'str'>,) has the size <class 'str'>, which is not an integer",
    ),
    (
        lambda: snp.ravel_multi_index(MESH, (2,)),
        NotAnArrayError,
        "argument multi_index of ravel_multi_index is Mesh('x': 1) of type Mesh, which is not an "
        "array",
    ),
    (
        lambda: snp.dtype([("a", 3)]),
        ArgumentError,
        "dtype does not take ([('a', 3)]): Cannot interpret '3' as a data type",
    ),
    (
        lambda: snp.lexsort(MESH),
        OperationTypeError,
        "lexsort takes a list of keys, or keys along an array, got Mesh('x': 1)",
    ),
    (
        lambda: linalg.expm(snp.eye(2), max_squarings=1.5),
        ArgumentError,
        "max_squarings of expm must be an integer, got 1.5",
    ),
    (
        lambda: sd.testing.collectives(""),
        ArgumentError,
        "a program has a function, and this one has none",
    ),
    (
        lambda: sd.debug.inspect_array_sharding(3, callback=print),
        NotAnArrayError,
        "inspect_array_sharding takes an array, got 3 of type int",
    ),
    (
        lambda: sd.debug.inspect_array_sharding(snp.ones(3), callback=3),
        ArgumentError,
        "callback of inspect_array_sharding must be a function, got 3",
    ),
    (
        lambda: sd.debug.visualize_sharding((3,), 3),
        ArgumentError,
        "visualize_sharding takes a sharding, got 3 of type int",
    ),
    (
        lambda: sd.debug.visualize_sharding("ab", WHOLE),
        ShapeError,
        "shape ('a', 'b') has the size 'a', which is not an integer",
    ),
    (
        lambda: sd.testing.collectives(lambda x: x, 3),
        ArgumentError,
        "args of a program are a tuple, got 3",
    ),
    (
        lambda: sd.experimental.multihost_utils.broadcast_one_to_all(X, is_source=X),
        ArgumentError,
        "is_source of broadcast_one_to_all is True or False, got float32[3]",
    ),
    (
        lambda: updated(TRACE, {"a": X}, optim.trace(0.9).init({"b": X})),
        StructureError,
        "the state of trace is in {'b': *}, and the updates are in {'a': *}",
    ),
    (
        lambda: updated(TRACE, X, ("a",)),
        ArgumentError,
        "trace got the state ('a',); make one with its own init",
    ),
    (
        lambda: updated(optim.scale(2.0), [X, "a"]),
        ArgumentError,
        "updates are arrays in containers, got 'a'",
    ),
    (
        lambda: updated(optim.scale(2.0), sd.random.key(0)),
        ArgumentError,
        "updates are arrays in containers, got key[]",
    ),
    (
        lambda: updated(optim.add_decayed_weights(0.1), X, (), "a"),
        ArgumentError,
        "params are arrays in containers, got 'a'",
    ),
    (
        lambda: updated(optim.add_decayed_weights(0.1), X, (), {"a": X}),
        StructureError,
        "params is in {'a': *}, and the updates are in *",
    ),
    (
        lambda: updated(optim.add_decayed_weights(0.1, mask=X), X, (), X),
        ArgumentError,
        "each of the mask of add_decayed_weights is True or False, got float32[3]",
    ),
    (
        lambda: updated(optim.add_decayed_weights(0.1, mask=lambda: X), X, (), X),
        ArgumentError,
        "the mask of add_decayed_weights takes (): too many positional arguments",
    ),
    (
        lambda: updated(
            made := optim.scale_by_learning_rate(lambda count: "a"), snp.ones(3), made.init(X)
        ),
        ArgumentError,
        "result of the learning rate is a number, got 'a'",
    ),
    (
        lambda: updated(optim.stateless(lambda: X), X),
        ArgumentError,
        "the function of stateless takes (): too many positional arguments",
    ),
    (
        lambda: optim.trace(0.9, nesterov=X),
        ArgumentError,
        "nesterov of trace is True or False, got float32[3]",
    ),
    (
        lambda: optim.adam(0.1, nesterov=X),
        ArgumentError,
        "nesterov of scale_by_adam is True or False, got float32[3]",
    ),
    (
        lambda: optim.apply_updates(np.ones(2), np.ones(3)),
        OperationTypeError,
        "shapes (2,) and (3,) do not broadcast to one shape",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[case[2][:60] for case in CASES])
def test_an_invalid_value_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)


def test_superfluous_squarings_of_expm_are_skipped() -> None:
    many = linalg.expm(snp.eye(2) * 3, max_squarings=2**31)
    assert np.array_equal(many, linalg.expm(snp.eye(2) * 3))


@pytest.mark.parametrize("number", [-5, True, 2.5])
def test_a_host_scalar_is_an_array_of_rank_0(number: float) -> None:
    made = sd.make_array_from_process_local_data(WHOLE, number)
    assert made.shape == ()
    assert np.asarray(made) == number
    assert made + 1 == number + 1


def test_numpy_arrays_and_scalars_are_update_values() -> None:
    made, _ = updated(optim.scale(2.0), {"a": 1.5, "b": np.ones(2, np.float32)})
    assert made["a"] == 3
    assert isinstance(made["b"], sd.Array)
    changed = optim.apply_updates(np.ones(2, np.float32), np.full(2, 2.0))
    assert changed.dtype == np.float32
    assert changed.tolist() == [3, 3]


WHERE: Any = "along"
OPTIONS: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (
        lambda: sd.jit(lambda x: x, compiler_options=5)(X),
        ArgumentError,
        "compiler_options of lambda are a dictionary, got 5",
    ),
    (
        lambda: sd.vmap(lambda x: x, spmd_axis_name=5)(X),
        ArgumentError,
        "spmd_axis_name of vmap of lambda is the name of a mesh axis, or of several, got 5",
    ),
    (
        lambda: sd.vmap(lambda x: x, spmd_axis_name=("x", 5))(X),
        ArgumentError,
        "spmd_axis_name of vmap of lambda is the name of a mesh axis, or of several, got ('x', 5)",
    ),
    (
        lambda: sd.device_put(X, donate=X),
        ArgumentError,
        "donate of device_put is True or False, got float32[3]",
    ),
    (
        lambda: sd.vmap(lambda x: lax.all_gather(x, WHERE, tiled=X), axis_name=WHERE)(X),
        ArgumentError,
        "tiled of all_gather is True or False, got float32[3]",
    ),
    (
        lambda: sd.vmap(lambda x: lax.psum_scatter(x, WHERE, tiled=X), axis_name=WHERE)(X),
        ArgumentError,
        "tiled of psum_scatter is True or False, got float32[3]",
    ),
    (
        lambda: sd.vmap(lambda x: lax.all_to_all(x, WHERE, 0, 0, tiled=X), axis_name=WHERE)(X),
        ArgumentError,
        "tiled of all_to_all is True or False, got float32[3]",
    ),
    (
        lambda: mapped(check_vma=X),
        ArgumentError,
        "check_vma of shard_map is True or False, got float32[3]",
    ),
    (
        lambda: mapped(check_rep=X),
        ArgumentError,
        "check_rep of shard_map is True or False, got float32[3]",
    ),
    (
        lambda: mapped(axis_names=None),
        ArgumentError,
        "axis_names of shard_map of lambda is a set of names, got None",
    ),
    (
        lambda: AbstractMesh((10**30,), ("x",)),
        MeshError,
        f"an AbstractMesh of sizes ({10**30},) has more than the maximum of 1048576 devices",
    ),
    (
        lambda: PositionalSharding(sd.devices()[:1]).reshape("ab"),  # type: ignore[arg-type]
        ShardingError,
        "sizes and axes are integers, got 'a'",
    ),
    (
        lambda: WHOLE.devices_indices_map(None),
        ShapeError,
        "shape (None,) has the size None, which is not an integer",
    ),
    (lambda: WHOLE.shard_shape((-5,)), ShapeError, "shape (-5,) has a negative size"),
    (
        lambda: WHOLE.is_equivalent_to(None, 1),
        ShardingError,
        "is_equivalent_to takes a sharding, got None",
    ),
    (
        lambda: WHOLE.is_equivalent_to(WHOLE, 10**30),
        ArgumentError,
        f"ndim of is_equivalent_to is at most 64, got {10**30}",
    ),
    (
        lambda: WHOLE.is_equivalent_to(WHOLE, None),
        ArgumentError,
        "ndim of is_equivalent_to must be an integer, got None",
    ),
    (
        lambda: snp.ones(3).at[0].set(1, mode=X),
        ArgumentError,
        "mode float32[3] is unknown; the modes are drop, fill, clip, promise_in_bounds",
    ),
    (
        lambda: snp.ones(3).item(10**30),
        IndexingError,
        f"item of f32[3] at ({10**30},): Python int too large to convert to C long",
    ),
    (
        lambda: snp.ones(3).transpose(X),
        AxisError,
        "an axis must be an integer, got np.float32(1.0)",
    ),
]


def mapped(**options: Any) -> Any:
    specs = {"in_specs": sd.P("x"), "out_specs": sd.P("x")}
    return sd.shard_map(lambda x: x, mesh=MESH, **specs, **options)(X)


@pytest.mark.parametrize(("wrong", "kind", "text"), OPTIONS, ids=[case[2][:60] for case in OPTIONS])
def test_an_invalid_option_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)


def test_stage_names_must_be_strings() -> None:
    with pytest.raises(PipelineError, match="has no pass called array"):
        sd.jit(lambda x: x).lower(X).as_text(X)
