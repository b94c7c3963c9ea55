"""The shardings that a call states while others are chosen."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.programs.deferred_arguments import (
    find_deferred,
    stated_shardings,
)
from shardir.frontend.errors import ArgumentError
from shardir.frontend.shardings.deferred_sharding import (
    ChosenShardings,
    DeferredSharding,
    UnshardedProgram,
)
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.error_assertions import assert_raises_exactly


def test_a_request_precedes_the_sharding_that_an_argument_has_on_a_mesh() -> None:
    mesh = sd.make_mesh((2,), ("a",))
    sharded, whole = NamedSharding(mesh, P("a")), NamedSharding(mesh, P())
    x = from_numpy(np.ones(4, np.float32))
    signatures = [cast(Any, device_put(x, each)).signature for each in (sharded, sharded)]
    elsewhere = cast(Any, device_put(x, sd.devices()[1])).signature
    signatures += [x.signature, elsewhere]
    requests = [None, whole, None, None]
    assert stated_shardings(signatures, requests) == (sharded, whole, None, None)


MESH = sd.make_mesh((4,), ("a",))
ROWS, WHOLE = NamedSharding(MESH, P("a")), NamedSharding(MESH, P())
X = np.arange(8, dtype=np.float32)


@dataclass(frozen=True)
class EachSharded(DeferredSharding):
    """A request that shards the rows of all other arguments, and all results in the same way."""

    name: str
    result: NamedSharding = ROWS

    def __repr__(self) -> str:
        return self.name

    def choose(self, program: UnshardedProgram) -> ChosenShardings:
        programs.append(program)
        return ChosenShardings(
            tuple(given or ROWS for given in program.stated),
            (self.result,) * len(program.module.main.body.returns),
            find_plan=lambda function, lowered: (self.name, function, lowered),
        )


programs: list[UnshardedProgram] = []


@pytest.fixture(autouse=True)
def no_programs() -> None:
    programs.clear()


def both(x: Any, y: Any) -> Any:
    return x + 1, y * 2


def test_different_requests_are_an_error() -> None:
    one, other = EachSharded("ONE"), EachSharded("OTHER")
    function = sd.jit(both, in_shardings=(one, other))
    assert_raises_exactly(
        lambda: function(X, X),
        ArgumentError,
        "in_shardings of both has ONE and OTHER; one plan shards all arguments, so use the same "
        "entry for all of them",
    )
    assert find_deferred((one, None, EachSharded("ONE"), WHOLE), "both") == one
    assert find_deferred((None, WHOLE), "both") is None


def test_the_mesh_is_that_of_an_argument_of_a_result_or_the_entered_one() -> None:
    request = EachSharded("ONE")
    other = sd.make_mesh((4,), ("b",))
    with other:
        sd.jit(both, in_shardings=(request, WHOLE)).lower(X, X)
        sd.jit(both, in_shardings=request, out_shardings=(None, WHOLE)).lower(X, X)
        sd.jit(both, in_shardings=request).lower(X, X)
    sd.jit(both, in_shardings=request).lower(X, X)
    assert [each.mesh for each in programs] == [MESH, MESH, other, None]
    assert [each.stated for each in programs] == [(None, WHOLE), *[(None, None)] * 3]


def test_a_call_whose_arguments_have_the_chosen_shardings_uses_them() -> None:
    function = sd.jit(both, in_shardings=EachSharded("ONE"))
    for arguments in ((X, X), (sd.device_put(X, ROWS), X), (X, sd.device_put(X, ROWS))):
        x, y = function(*arguments)
        assert (x.sharding, y.sharding) == (ROWS, ROWS)
    assert len(programs) == 1
    function.lower(X, sd.ShapeDtypeStruct((8,), np.float32, sharding=WHOLE))
    function.lower(X[:4], X[:4])
    assert len(programs) == 3


def test_stated_shardings_of_results_precede_chosen_ones() -> None:
    request = EachSharded("ONE", result=WHOLE)
    function = sd.jit(both, in_shardings=request, out_shardings=(ROWS, None))
    assert [each.sharding for each in function(X, X)] == [ROWS, WHOLE]


def test_a_lowered_program_has_the_plan_of_its_shardings() -> None:
    function = sd.jit(both, in_shardings=EachSharded("ONE"))
    lowered = function.lower(X, X)
    plan: Any = lowered.plan()
    assert plan == ("ONE", function, lowered)
    assert sd.jit(both).lower(X, X).plan() is None
