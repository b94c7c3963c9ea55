"""Values of kinds that a function cannot do anything with: errors say which and whose they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.distributed
import shardir.experimental.multihost_utils
import shardir.optim
import shardir.testing
from shardir.errors import OperationTypeError, ShardirError
from shardir.frontend.errors import ArgumentError, NotAnArrayError, ShapeError, StructureError
from tests.frontend.refused import assert_refused

sd: Any = shardir
lax: Any = shardir.lax
snp: Any = shardir.numpy
optim: Any = shardir.optim
X = np.ones(3, np.float32)
MESH = sd.make_mesh((1,), ("x",))
WHOLE = sd.NamedSharding(MESH, sd.P())


def updated(made: Any, updates: Any, state: Any = (), params: Any = None) -> Any:
    return made.update(updates, state, params)


TRACE = optim.trace(0.9)
CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (lambda: lax.top_k(X, 1.5), ArgumentError, "k of top_k is a whole number, got 1.5"),
    (lambda: lax.approx_max_k(X, 1.5), ArgumentError, "k of top_k is a whole number, got 1.5"),
    (lambda: snp.frexp(1j), OperationTypeError, "frexp takes real numbers, got c64"),
    (
        lambda: snp.zeros(str),
        ShapeError,
        "shape (<class 'str'>,) has the size <class 'str'>, which is no whole number",
    ),
    (
        lambda: snp.ravel_multi_index(MESH, (2,)),
        NotAnArrayError,
        "argument multi_index of ravel_multi_index is Mesh('x': 1) of type Mesh, which is no array",
    ),
    (
        lambda: snp.dtype([("a", 3)]),
        ArgumentError,
        "dtype does not take ([('a', 3)]): Cannot interpret '3' as a data type",
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
        "shape ('a', 'b') has the size 'a', which is no whole number",
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
def test_an_error_says_what_cannot_be(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_refused(wrong, kind, text)


@pytest.mark.parametrize("number", [-5, True, 2.5])
def test_a_number_of_this_process_is_an_array_without_dimensions(number: float) -> None:
    made = sd.make_array_from_process_local_data(WHOLE, number)
    assert made.shape == ()
    assert np.asarray(made) == number
    assert made + 1 == number + 1


def test_numbers_and_arrays_of_numpy_are_updates() -> None:
    made, _ = updated(optim.scale(2.0), {"a": 1.5, "b": np.ones(2, np.float32)})
    assert made["a"] == 3
    assert isinstance(made["b"], sd.Array)
    changed = optim.apply_updates(np.ones(2, np.float32), np.full(2, 2.0))
    assert changed.dtype == np.float32
    assert changed.tolist() == [3, 3]
