"""Collectives over every layout of groups, and permutations completed to full ones."""

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from shardir import lax
from shardir.backends.ipu.lowering.replica_groups import plan_copies
from shardir.sharding import PartitionSpec as P
from tests.backends.ipu.collective_programs import collectives, mapped
from tests.backends.ipu.host_model_execution import check
from tests.backends.ipu.model_steps import draw, grid, put


@pytest.mark.parametrize("strided", ["ring", "gcl"])
def test_collectives_along_any_axes(strided: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDIR_HOST_MODEL_ALLOW_STRIDED", "1")
    check(collectives(strided))


PAIRS = {
    "partial": [(0, 1), (1, 2)],
    "itself": [(0, 0), (1, 2), (2, 1)],
    "one left over": [(0, 1), (1, 2), (2, 0)],
    "only itself": [(2, 2)],
    "nobody": [],
    "around": [(0, 1), (1, 2), (2, 3), (3, 0)],
    "everyone itself": [(0, 0), (1, 1), (2, 2), (3, 3)],
}


def test_permutations_are_completed_and_masked() -> None:
    mesh = grid(4, names=("x",))
    x = put(mesh, np.arange(8, dtype=np.float32) + 1, "x")
    flags = put(mesh, np.arange(8) % 3 == 0, "x")

    def move(pairs: Any) -> Any:
        return lambda x: lax.ppermute(x, "x", pairs)

    def tail(x: Any) -> Any:
        return lax.dynamic_slice(lax.all_gather(x, "x", tiled=True), (3,), (4,))

    cases = {name: mapped(mesh, move(p), P("x"), P("x"), x) for name, p in PAIRS.items()}
    for dtype in (np.int8, np.uint16, np.float16):
        few = put(mesh, np.arange(8).astype(dtype), "x")
        name = np.dtype(dtype).name
        cases[name] = mapped(mesh, move(PAIRS["partial"]), P("x"), P("x"), few)
        cases[f"{name} gathered"] = mapped(mesh, tail, P("x"), P(), few)
    cases["bool"] = mapped(mesh, move(PAIRS["partial"]), P("x"), P("x"), flags)
    both = grid(2, 2)
    y = put(both, draw(8), ("data", "model"))
    cases["strided"] = mapped(
        both, lambda x: lax.ppermute(x, "data", [(0, 1)]), P(("data", "model")),
        P(("data", "model")), y,
    )  # fmt: skip
    check(cases)


@pytest.mark.parametrize("count", [2, 4])
def test_every_partial_permutation_is_completed(count: int) -> None:
    seen = 0
    for targets in product((None, *range(count)), repeat=count):
        moves = {s: t for s, t in enumerate(targets) if t is not None and t != s}
        if len(set(moves.values())) < len(moves):
            continue
        seen += 1
        received: dict[int, int] = {}
        for copy in plan_copies(moves, count):
            partner = dict(copy.partner)
            assert sorted(partner) == sorted(partner.values()) == list(range(count))
            assert all(source != target for source, target in partner.items())
            received.update({t: s for s, t in partner.items() if t in copy.keep})
        assert received == {target: source for source, target in moves.items()}
    assert seen > len(list(permutations(range(count))))
