"""Collectives of the host model give the defined results on every replica."""

from functools import cache, reduce

import numpy as np
import pytest

from shardir.backends.ipu.host_model import HostModelError
from tests.backends.ipu.host_model.compiled_programs import Array, programs, rng, run_program

REPLICA_COUNT = 8


@cache
def collectives() -> tuple[dict[str, Array], dict[str, Array]]:
    def parts(*shape: int) -> Array:
        return rng().normal(size=(REPLICA_COUNT, *shape))

    arguments = {
        "x": parts(10).astype("f4"),
        "h": parts(10).astype("f2"),
        "i": rng().integers(-(2**31), 2**31, (REPLICA_COUNT, 3)).astype("i4"),
        "c": parts(6) > -1,
        "rows": parts(8, 3).astype("f4"),
        "pairs": parts(2, 3).astype("f4"),
    }
    return arguments, run_program("collectives", arguments, sharded=True)


def group_rows(x: Array, size: int) -> list[Array]:
    """Return for each replica the rows of the members of its group, in order."""
    return [x[r // size * size :][:size] for r in range(REPLICA_COUNT)]


def sum_in_order(rows: Array) -> Array:
    return reduce(np.add, rows)


def test_all_reduce_combines_members_in_order() -> None:
    v, got = collectives()
    x = v["x"]
    np.testing.assert_array_equal(got["sum"], [sum_in_order(m) for m in group_rows(x, 8)])
    np.testing.assert_array_equal(
        got["mean"], [sum_in_order(m) / np.float32(8) for m in group_rows(x, 8)]
    )
    np.testing.assert_array_equal(got["sum_of_2"], [sum_in_order(m) for m in group_rows(x, 2)])
    np.testing.assert_array_equal(
        got["product_of_4"], [reduce(np.multiply, m) for m in group_rows(x, 4)]
    )
    np.testing.assert_array_equal(got["lowest"], [m.min(0) for m in group_rows(x, 8)])
    np.testing.assert_array_equal(got["highest_of_4"], [m.max(0) for m in group_rows(x, 4)])
    np.testing.assert_array_equal(got["squares"], [sum_in_order(m * m) for m in group_rows(x, 8)])
    np.testing.assert_array_equal(got["half"], [sum_in_order(m) for m in group_rows(v["h"], 8)])
    np.testing.assert_array_equal(
        got["whole"], [m.sum(0, dtype="i4") for m in group_rows(v["i"], 8)]
    )
    np.testing.assert_array_equal(got["every"], [m.all(0) for m in group_rows(v["c"], 8)])
    np.testing.assert_array_equal(got["some_of_2"], [m.any(0) for m in group_rows(v["c"], 2)])
    np.testing.assert_array_equal(got["in_place"], got["sum_of_2"])
    np.testing.assert_array_equal(got["to_place"], got["sum_of_2"])


def test_all_gather_stacks_the_members() -> None:
    v, got = collectives()
    np.testing.assert_array_equal(got["gathered"], group_rows(v["x"], 8))
    np.testing.assert_array_equal(got["gathered_of_2"], group_rows(v["x"], 2))
    np.testing.assert_array_equal(got["gathered_bools"], group_rows(v["c"], 4))


def padded_pieces(rows: list[Array], size: int) -> list[Array]:
    """Return for each replica its zero-padded piece of its row."""
    each = -(-rows[0].size // size)
    padded = [np.pad(row, (0, each * size - row.size)) for row in rows]
    return [row.reshape(size, each)[r % size] for r, row in enumerate(padded)]


def test_reduce_scatter_pads_pieces_with_zeros() -> None:
    v, got = collectives()
    x = v["x"]
    np.testing.assert_array_equal(
        got["pieces"], padded_pieces([sum_in_order(m) for m in group_rows(x, 8)], 8)
    )
    np.testing.assert_array_equal(
        got["pieces_of_4"], padded_pieces([sum_in_order(m) for m in group_rows(x, 4)], 4)
    )
    np.testing.assert_array_equal(got["own_of_4"], padded_pieces(list(x), 4))
    assert (got["pieces"][5:] == 0).all()


def test_all_to_all_transposes_rows() -> None:
    v, got = collectives()
    np.testing.assert_array_equal(got["turned"], v["rows"].transpose(1, 0, 2))
    turned = [m[:, r % 2] for r, m in enumerate(group_rows(v["pairs"], 2))]
    np.testing.assert_array_equal(got["turned_of_2"], turned)


def test_a_cross_replica_copy_permutes_replicas() -> None:
    v, got = collectives()
    np.testing.assert_array_equal(got["ring"], np.roll(v["x"], 3, 0))
    np.testing.assert_array_equal(got["index"], range(REPLICA_COUNT))


def test_strided_groups_are_rejected_unless_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
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
