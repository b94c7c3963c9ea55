"""Collectives of the host model: what they are defined to give, on every replica."""

from functools import cache, reduce

import numpy as np
import pytest

from shardir.backends.ipu.host_model import HostModelError
from tests.backends.ipu.host_model.compiled_programs import Array, programs, rng, run

REPLICAS = 8


@cache
def collectives() -> tuple[dict[str, Array], dict[str, Array]]:
    def parts(*shape: int) -> Array:
        return rng().normal(size=(REPLICAS, *shape))

    arguments = {
        "x": parts(10).astype("f4"),
        "h": parts(10).astype("f2"),
        "i": rng().integers(-(2**31), 2**31, (REPLICAS, 3)).astype("i4"),
        "c": parts(6) > -1,
        "rows": parts(8, 3).astype("f4"),
        "pairs": parts(2, 3).astype("f4"),
    }
    return arguments, run("collectives", arguments, sharded=True)


def groups(x: Array, size: int) -> list[Array]:
    """For each replica what the members of its group have, in their order."""
    return [x[r // size * size :][:size] for r in range(REPLICAS)]


def added(rows: Array) -> Array:
    return reduce(np.add, rows)


def test_reductions_go_through_the_members_in_order() -> None:
    v, got = collectives()
    x = v["x"]
    np.testing.assert_array_equal(got["sum"], [added(m) for m in groups(x, 8)])
    np.testing.assert_array_equal(got["mean"], [added(m) / np.float32(8) for m in groups(x, 8)])
    np.testing.assert_array_equal(got["sum_of_2"], [added(m) for m in groups(x, 2)])
    np.testing.assert_array_equal(
        got["product_of_4"], [reduce(np.multiply, m) for m in groups(x, 4)]
    )
    np.testing.assert_array_equal(got["lowest"], [m.min(0) for m in groups(x, 8)])
    np.testing.assert_array_equal(got["highest_of_4"], [m.max(0) for m in groups(x, 4)])
    np.testing.assert_array_equal(got["squares"], [added(m * m) for m in groups(x, 8)])
    np.testing.assert_array_equal(got["half"], [added(m) for m in groups(v["h"], 8)])
    np.testing.assert_array_equal(got["whole"], [m.sum(0, dtype="i4") for m in groups(v["i"], 8)])
    np.testing.assert_array_equal(got["every"], [m.all(0) for m in groups(v["c"], 8)])
    np.testing.assert_array_equal(got["some_of_2"], [m.any(0) for m in groups(v["c"], 2)])
    np.testing.assert_array_equal(got["in_place"], got["sum_of_2"])
    np.testing.assert_array_equal(got["to_place"], got["sum_of_2"])


def test_gathering_stacks_the_members() -> None:
    v, got = collectives()
    np.testing.assert_array_equal(got["gathered"], groups(v["x"], 8))
    np.testing.assert_array_equal(got["gathered_of_2"], groups(v["x"], 2))
    np.testing.assert_array_equal(got["gathered_bools"], groups(v["c"], 4))


def pieces(rows: list[Array], size: int) -> list[Array]:
    """Of each replica's row its piece; what lies past the end is zero."""
    each = -(-rows[0].size // size)
    padded = [np.pad(row, (0, each * size - row.size)) for row in rows]
    return [row.reshape(size, each)[r % size] for r, row in enumerate(padded)]


def test_scattering_cuts_into_pieces_padded_with_zeros() -> None:
    v, got = collectives()
    x = v["x"]
    np.testing.assert_array_equal(got["pieces"], pieces([added(m) for m in groups(x, 8)], 8))
    np.testing.assert_array_equal(got["pieces_of_4"], pieces([added(m) for m in groups(x, 4)], 4))
    np.testing.assert_array_equal(got["own_of_4"], pieces(list(x), 4))
    assert (got["pieces"][5:] == 0).all()


def test_rows_go_from_all_to_all() -> None:
    v, got = collectives()
    np.testing.assert_array_equal(got["turned"], v["rows"].transpose(1, 0, 2))
    turned = [m[:, r % 2] for r, m in enumerate(groups(v["pairs"], 2))]
    np.testing.assert_array_equal(got["turned_of_2"], turned)


def test_a_ring_moves_every_replicas_part() -> None:
    v, got = collectives()
    np.testing.assert_array_equal(got["ring"], np.roll(v["x"], 3, 0))
    np.testing.assert_array_equal(got["index"], range(REPLICAS))


def test_strided_groups_are_refused_until_they_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(8, dtype="i4")
    with pytest.raises(HostModelError) as caught:
        programs()["strided"](x)
    assert str(caught.value) == (
        "gcl::allGatherCrossReplica: not every machine joins groups of 4 replicas, 2 apart; "
        "use steps of CrossReplicaCopy, or set SHARDIR_HOST_MODEL_ALLOW_STRIDED"
    )
    monkeypatch.setenv("SHARDIR_HOST_MODEL_ALLOW_STRIDED", "1")
    (gathered,) = programs()["strided"](x)
    np.testing.assert_array_equal(gathered, [[0, 2, 4, 6], [1, 3, 5, 7]] * 4)
