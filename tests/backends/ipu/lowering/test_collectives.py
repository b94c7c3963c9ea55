"""Collectives over every layout of groups; completion of partial permutations."""

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from shardir import lax
from shardir.backends.ipu.lowering.replica_groups import plan_copies
from shardir.sharding import PartitionSpec as P
from tests.backends.ipu.collective_programs import collective_cases, shard_map_case
from tests.backends.ipu.host_model_execution import check
from tests.backends.ipu.model_steps import mesh_of, normal_array, put_on_mesh


@pytest.mark.parametrize("strided", ["ring", "gcl"])
def test_collectives_along_all_axes_match_the_reference(
    strided: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDIR_HOST_MODEL_ALLOW_STRIDED", "1")
    check(collective_cases(strided))


PERMUTATIONS = {
    "partial": [(0, 1), (1, 2)],
    "one to itself": [(0, 0), (1, 2), (2, 1)],
    "one device missing": [(0, 1), (1, 2), (2, 0)],
    "one device to itself": [(2, 2)],
    "empty": [],
    "ring": [(0, 1), (1, 2), (2, 3), (3, 0)],
    "identity": [(0, 0), (1, 1), (2, 2), (3, 3)],
}


def test_partial_permutations_match_the_reference() -> None:
    mesh = mesh_of(4, names=("x",))
    x = put_on_mesh(mesh, np.arange(8, dtype=np.float32) + 1, "x")
    flags = put_on_mesh(mesh, np.arange(8) % 3 == 0, "x")

    def move(pairs: Any) -> Any:
        return lambda x: lax.ppermute(x, "x", pairs)

    def tail(x: Any) -> Any:
        return lax.dynamic_slice(lax.all_gather(x, "x", tiled=True), (3,), (4,))

    cases = {
        name: shard_map_case(mesh, move(p), P("x"), P("x"), x) for name, p in PERMUTATIONS.items()
    }
    for dtype in (np.int8, np.uint16, np.float16):
        few = put_on_mesh(mesh, np.arange(8).astype(dtype), "x")
        name = np.dtype(dtype).name
        cases[name] = shard_map_case(mesh, move(PERMUTATIONS["partial"]), P("x"), P("x"), few)
        cases[f"{name} gathered"] = shard_map_case(mesh, tail, P("x"), P(), few)
    cases["bool"] = shard_map_case(mesh, move(PERMUTATIONS["partial"]), P("x"), P("x"), flags)
    both = mesh_of(2, 2)
    y = put_on_mesh(both, normal_array(8), ("data", "model"))
    cases["strided"] = shard_map_case(
        both, lambda x: lax.ppermute(x, "data", [(0, 1)]), P(("data", "model")),
        P(("data", "model")), y,
    )  # fmt: skip
    check(cases)


@pytest.mark.parametrize("count", [2, 4])
def test_the_copies_of_every_partial_permutation_are_full_permutations(count: int) -> None:
    count_of_permutations = 0
    for targets in product((None, *range(count)), repeat=count):
        moves = {s: t for s, t in enumerate(targets) if t is not None and t != s}
        if len(set(moves.values())) < len(moves):
            continue
        count_of_permutations += 1
        received: dict[int, int] = {}
        for copy in plan_copies(moves, count):
            partner = dict(copy.partner)
            assert sorted(partner) == sorted(partner.values()) == list(range(count))
            assert all(source != target for source, target in partner.items())
            received.update({t: s for s, t in partner.items() if t in copy.keep})
        assert received == {target: source for source, target in moves.items()}
    assert count_of_permutations > len(list(permutations(range(count))))
