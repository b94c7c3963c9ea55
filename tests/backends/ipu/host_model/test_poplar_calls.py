"""Calls of the host model: views, reductions, products, indexing, control flow."""

from functools import cache, reduce

import numpy as np
import pytest

from tests.backends.ipu.host_model.compiled_programs import Array, programs, rng, run_program


def small_integers(low: int, high: int, *shape: int, dtype: str = "f4") -> Array:
    """Return small integers, whose sums are exact."""
    return rng().integers(low, high, shape).astype(dtype)


def test_views_equal_those_of_numpy() -> None:
    x = rng().normal(size=(2, 3, 4)).astype("f4")
    expected = {
        "row": x[1],
        "slice": x[:, :, 1:3],
        "box": x[0:2, 1:3, 1:4],
        "reshape": x.reshape(4, 6),
        "flatten": x.reshape(-1),
        "shuffle": x.transpose(2, 0, 1),
        "transpose": x[0].T,
        "expand": x[..., None],
        "squeeze": x[:, 1],
        "broadcast": np.tile(x[:, 0:2], (1, 3, 1)),
        "reverse": x[:, :, ::-1],
        "sample": x[:, ::2],
        "joined": np.concatenate([x, x[::-1], x[:1]]),
        "both": np.concatenate([x, x], 1),
        "padded": np.pad(x[:, :, 1:], [(1, 0), (0, 2), (0, 1)], constant_values=5),
        "halves": np.array([0.1, 65519, -1e-8], "f2"),
        "filled": np.full((2, 2), -3),
        "written": np.array([-3, 0, -3, 0]),
    }
    got = run_program("views", {"x": x})
    assert set(got) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, name)


@cache
def products() -> tuple[dict[str, Array], dict[str, Array]]:
    arguments = {
        "a": rng().normal(size=(3, 5)).astype("f4"),
        "b": rng().normal(size=(5, 4)).astype("f4"),
        "ha": rng().normal(size=(3, 5)).astype("f2"),
        "hb": rng().normal(size=(5, 4)).astype("f2"),
        "ga": rng().normal(size=(2, 3, 5)).astype("f4"),
        "gb": rng().normal(size=(2, 5, 4)).astype("f4"),
        "t": rng().uniform(0.5, 2, (7, 6, 9)).astype("f4"),
        "ht": rng().uniform(0, 9, (7, 300)).astype("f2"),
        "i": rng().integers(-(2**31), 2**31, (6, 7)).astype("i4"),
        "c": rng().integers(0, 3, (6, 7)) > 0,
    }
    return arguments, run_program("products", arguments)


def sum_in_order(rows: Array) -> Array:
    """Return the sum over the first dimension, in order, with rounding after each addition."""
    return reduce(np.add, rows)


def product_in_order(a: Array, b: Array) -> Array:
    """Return a matrix product that sums in the order of the contracted dimension."""
    return sum_in_order((a[:, :, None] * b[None]).transpose(1, 0, 2))


def test_matrix_products_sum_in_order() -> None:
    v, got = products()
    np.testing.assert_array_equal(got["ab"], product_in_order(v["a"], v["b"]))
    wide = product_in_order(v["ha"].astype("f4"), v["hb"].astype("f4"))
    np.testing.assert_array_equal(got["wide"], wide)
    np.testing.assert_array_equal(got["hab"], wide.astype("f2"))
    grouped = [product_in_order(a, b) for a, b in zip(v["ga"], v["gb"], strict=True)]
    np.testing.assert_array_equal(got["grouped"], grouped)


def test_reductions_combine_elements_in_order() -> None:
    v, got = products()
    t = v["t"]
    np.testing.assert_array_equal(got["sum"], sum_in_order(t.transpose(0, 2, 1).reshape(63, 6)))
    np.testing.assert_array_equal(got["all"], sum_in_order(t.reshape(-1)))
    np.testing.assert_array_equal(got["none"], t)
    np.testing.assert_array_equal(got["product"], reduce(np.multiply, t.transpose(1, 0, 2)))
    np.testing.assert_array_equal(got["lowest"], t.min(0))
    np.testing.assert_array_equal(got["highest"], t.max(2))
    np.testing.assert_array_equal(got["squares"], sum_in_order(np.square(t).reshape(7, 54).T))
    np.testing.assert_allclose(got["logs"], np.log(np.exp(t.astype("f8")).sum((0, 1))), 1e-5)
    # Half precision is summed in single precision and rounded once at the end.
    halves = sum_in_order(v["ht"].astype("f4").T)
    np.testing.assert_array_equal(got["halves"], halves)
    np.testing.assert_array_equal(got["half"], halves.astype("f2"))
    np.testing.assert_array_equal(got["whole"], v["i"].sum(1, dtype="i4"))
    np.testing.assert_array_equal(got["every"], v["c"].all(0))
    np.testing.assert_array_equal(got["some"], v["c"].any(1))


@cache
def run_indexing_program() -> tuple[dict[str, Array], dict[str, Array]]:
    keys = np.array([rng().permutation(8) for _ in range(3)], "f4") - 3
    arguments = {
        "x": rng().normal(size=(4, 5, 6)).astype("f4"),
        "rows": np.array([3, 0, 0, 1, 2, 3, 1], "u4"),
        "at": np.array([3, 1], "u4"),
        "patch": rng().normal(size=(4, 2, 3)).astype("f4"),
        "places": np.array([[1, 2], [0, 0], [1, 2]], "u4"),
        "updates": rng().normal(size=(3, 4)).astype("f4"),
        "keys": keys,
        "ties": np.array([[2, 1, 2, 1, 3, 3, 1, 2, 2], [0] * 9], "i4"),
    }
    return arguments, run_program("indexing", arguments)


def test_dynamic_slices_and_updates_start_at_tensor_offsets() -> None:
    v, got = run_indexing_program()
    x, places = v["x"], v["places"]
    np.testing.assert_array_equal(got["picked"], x[:, v["rows"]])
    np.testing.assert_array_equal(got["points"], [x[:, j, k] for j, k in places])
    windows = [x[i : i + 2, :3, k : k + 4] for i, k in places[:2]]
    np.testing.assert_array_equal(got["windows"], np.stack(windows, 2))
    np.testing.assert_array_equal(got["cut"], x[:, 3:5, 1:4])
    put = x.copy()
    put[:, 3:5, 1:4] = v["patch"]
    np.testing.assert_array_equal(got["put"], put)
    np.testing.assert_array_equal(got["looked_up"], x.reshape(4, 30)[v["rows"], None])


def test_scatter_applies_updates_in_order() -> None:
    v, got = run_indexing_program()
    scattered, summed = v["x"].copy(), v["x"].copy()
    for (j, k), update in zip(v["places"], v["updates"], strict=True):
        scattered[:, j, k] = update
        summed[:, j, k] += update
    np.testing.assert_array_equal(got["scattered"], scattered)
    np.testing.assert_array_equal(got["added"], summed)


def test_sorts_are_stable_only_if_requested() -> None:
    v, got = run_indexing_program()
    keys, ties = v["keys"], v["ties"]
    np.testing.assert_array_equal(got["sorted"], np.sort(keys, 1))
    np.testing.assert_array_equal(got["sorted_columns"], np.sort(keys, 0))
    np.testing.assert_array_equal(got["carried"], np.argsort(keys, 1))
    np.testing.assert_array_equal(got["top"], np.sort(keys, 1)[:, :4:-1])
    np.testing.assert_array_equal(got["bottom"], np.sort(keys, 1)[:, :3])
    np.testing.assert_array_equal(got["stable"], np.sort(ties, 1))
    np.testing.assert_array_equal(got["stable_places"], np.argsort(ties, 1, kind="stable"))
    np.testing.assert_array_equal(got["top_places"], np.argsort(-ties, 1, kind="stable")[:, :4])


def collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


@pytest.mark.parametrize("n", [1, 6, 7, 27])
def test_loops_and_branches_give_the_expected_results(
    n: int, capfd: pytest.CaptureFixture[str]
) -> None:
    got = run_program("control", {"n": np.array([n], "i4"), "state": np.array([5], "i4")})
    assert got == {
        "collatz": [collatz(n)],
        "parity": [n % 2],
        "case": [{6: 0, 7: 10 * n}.get(n, 0)],
        "doubled": [32 * n],
        "counted": [0 + 1 + 2 + 3 + 4],
        "counted_by_3": [1 + 4 + 7],
        "state_after": [11],
    }
    assert capfd.readouterr().err == f"doubled[0]: {32 * n}\ndoubled[1]: {32 * n}\n"


def test_state_on_the_device_persists_between_steps() -> None:
    program = programs()["control"]
    *_, after = program(np.array([1], "i4"), np.array([5], "i4"), steps=3)
    assert after == ((5 * 2 + 1) * 2 + 1) * 2 + 1


def rule_30(first: Array, rows: int) -> Array:
    board = [first]
    for _ in range(rows - 1):
        left, middle, right = (np.pad(board[-1], 1)[i : i + len(first)] for i in range(3))
        board.append(left ^ (middle | right))
    return np.array(board)


def test_rule_30_on_a_ring_of_replicas_equals_one_device() -> None:
    first = np.zeros(72, bool)
    first[36] = True
    expected = rule_30(first, 30)
    np.testing.assert_array_equal(run_program("rule30", {"first": first})["board"], expected)
    assert "".join(np.where(expected[3], "#", ".")[32:41]) == ".##.####."
    first = rng().integers(0, 2, 72).astype(bool)
    np.testing.assert_array_equal(
        run_program("rule30", {"first": first})["board"], rule_30(first, 30)
    )
