"""In-place updates: loops that fill an array copy only the updated parts."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax, numpy as snp

X = np.arange(50, dtype=np.float32)


def iteration_schedule(function: Any, *args: Any) -> str:
    """Return the schedule of an iteration of the only loop."""
    text = str(sd.jit(function).lower(*args).compile().as_text("schedule"))
    return text.split("iterations of scan")[1].split("  native call of 1 phase")[0]


def double_elements(x: Any) -> Any:
    return lax.fori_loop(0, 50, lambda i, a: a.at[i].set(a[i] * 2), x)


def double_and_increment(x: Any) -> Any:
    return lax.fori_loop(0, 50, lambda i, a: a.at[i].set(a[i] * 2).at[0].add(1.0), x)


def read_after_update(x: Any) -> Any:
    def step(i: Any, a: Any) -> Any:
        made = a.at[i].set(-1.0)
        return made.at[0].add(a[i] + snp.sum(a[:3]))

    return lax.fori_loop(0, 50, step, x)


def update_and_keep(x: Any) -> Any:
    def step(carry: Any, i: Any) -> Any:
        return (carry.at[i].set(0.0)), carry

    return lax.scan(step, x, snp.arange(50))


def swap_carries(x: Any) -> Any:
    return lax.fori_loop(0, 50, lambda i, ab: (ab[1].at[i].set(1.0), ab[0]), (x, 2 * x))


def update_rows(x: Any) -> Any:
    def step(i: Any, a: Any) -> Any:
        return lax.dynamic_update_slice(a, -a[:2], (i,))

    return lax.fori_loop(0, 10, step, x)


def print_and_update(x: Any) -> Any:
    def step(i: Any, a: Any) -> Any:
        sd.debug.print("{}", i)
        return a.at[i].set(-1.0)

    return lax.fori_loop(0, 3, step, x)


FUNCTIONS = [
    double_elements,
    double_and_increment,
    read_after_update,
    update_and_keep,
    swap_carries,
    update_rows,
    print_and_update,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_in_place_updates_match_the_interpreter(function: Any) -> None:
    with sd.config(isolated=True):
        expected = sd.tree.leaves(sd.jit(lambda x: function(x))(X))
    for made, want in zip(sd.tree.leaves(sd.jit(function)(X)), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(made), np.asarray(want))


@pytest.mark.parametrize("function", [double_elements, double_and_increment])
def test_an_iteration_copies_only_elements(function: Any) -> None:
    assert "scatter" in iteration_schedule(function, X)
    copies = [line for line in iteration_schedule(function, X).splitlines() if "copy" in line]
    assert all(line.endswith("about 2 ns") for line in copies)  # elements that are read


def test_a_carried_row_needs_no_copy() -> None:
    """This is the hidden state of a recurrent network with batch size 1."""
    w = np.random.default_rng(0).normal(size=(50, 50)).astype(np.float32) / 10

    def steps(h: Any) -> Any:
        return lax.fori_loop(0, 9, lambda _, h: snp.tanh(h @ w + X), h)

    assert "copy" not in iteration_schedule(steps, X[None])
    want = X
    for _ in range(9):
        want = np.tanh(want @ w + X)
    np.testing.assert_allclose(sd.jit(steps)(X[None]), want[None], rtol=1e-4)


def test_a_donated_array_is_updated_in_place() -> None:
    x = snp.zeros(5000) + 1
    address = x.storage.address
    made = sd.jit(lambda x, i: x.at[i].set(5.0), donate_argnums=0)(x, 3)
    assert made.storage.address == address
    assert made[:5].tolist() == [1, 1, 1, 5, 1]


def test_reshape_and_transpose_make_one_copy() -> None:
    """This is an all-to-all in a merged program."""
    x = np.arange(48, dtype=np.float32).reshape(4, 12)

    def exchange_blocks(x: Any) -> Any:
        return x.reshape(4, 3, 4).transpose(1, 0, 2).reshape(12, 4)

    compiled = sd.jit(exchange_blocks).lower(x).compile()
    _, _, phases = str(compiled.as_text("schedule")).partition("\nphases\n")
    assert [line.split(",")[0] for line in phases.splitlines()[1:]] == ["    copy: 1 task"]
    np.testing.assert_array_equal(compiled(x), exchange_blocks(x))


def concatenate_twice(x: Any, y: Any) -> Any:
    rows = [snp.concatenate([x[:, 3:], y[:, :3]], 1), snp.concatenate([y[:, 4:], x[:, :4]], 1)]
    return snp.concatenate([rows[0], x + y, rows[1]], 0), rows[0].T


def test_nested_concatenations_copy_once() -> None:
    x = np.arange(42, dtype=np.float32).reshape(6, 7)
    turned = sd.jit(lambda x: snp.roll(x, (2, 3), (0, 1)))
    np.testing.assert_array_equal(turned(x), np.roll(x, (2, 3), (0, 1)))
    text = turned.lower(x).compile().as_text("schedule")
    assert "arena 0 bytes" in text
    assert text.count("copy: ") == 4


@pytest.mark.parametrize("donated", [(), (0,), (0, 1)])
def test_nested_concatenations_with_other_uses_are_correct(donated: tuple[int, ...]) -> None:
    x, y = (np.random.default_rng(i).normal(size=(6, 7)).astype(np.float32) for i in range(2))
    found = sd.jit(concatenate_twice, donate_argnums=donated)(snp.asarray(x), snp.asarray(y))
    rows = np.concatenate([x[:, 3:], y[:, :3]], 1), np.concatenate([y[:, 4:], x[:, :4]], 1)
    np.testing.assert_array_equal(found[0], np.concatenate([rows[0], x + y, rows[1]]))
    np.testing.assert_array_equal(found[1], rows[0].T)


@pytest.mark.parametrize("donated", [False, True])
def test_an_elementwise_operand_does_not_reserve_the_concatenation(donated: bool) -> None:
    """The buffer of the first operand is too small for the result."""

    def function(x: Any) -> Any:
        left = snp.concatenate([x * 2, x + 1], 0)
        return snp.concatenate([left, left[::-1], x], 0)

    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    left = np.concatenate([x * 2, x + 1])
    got = sd.jit(function, donate_argnums=(0,) if donated else ())(snp.asarray(x))
    np.testing.assert_array_equal(got, np.concatenate([left, left[::-1], x]))


def test_rows_read_in_a_later_loop_are_not_overwritten() -> None:
    """Reads inside a loop count as reads of the loop."""

    def function(x: Any, rows: Any) -> Any:
        taken = x.at[rows].get(mode="promise_in_bounds")
        written = taken.at[snp.array([1, 3])].set(-5.0)
        sums = snp.zeros_like(taken)
        return written, lax.fori_loop(0, 3, lambda _, a: a + snp.sort(taken, axis=1), sums)

    x, rows = np.arange(64, dtype=np.float32).reshape(16, 4) % 7, np.array([3, 9, 0, 15])
    written, summed = sd.jit(function)(x, rows)
    expected = x[rows]
    np.testing.assert_array_equal(summed, 3 * np.sort(expected, axis=1))
    expected[[1, 3]] = -5
    np.testing.assert_array_equal(written, expected)


def test_a_loop_with_calls_of_the_user_ends_with_its_condition() -> None:
    counts: list[int] = []

    def record(count: Any) -> None:
        counts.append(int(count))
        assert len(counts) <= 3

    def step(carry: Any) -> Any:
        i, a = carry
        sd.debug.callback(record, i)
        return i + 1, a.at[i].set(-1.0)

    made = sd.jit(lambda n, x: lax.while_loop(lambda carry: carry[0] < n, step, (0, x)))(3, X)[1]
    np.testing.assert_array_equal(made[:5], [-1, -1, -1, 3, 4])
    sd.effects_barrier()
    assert counts == [0, 1, 2]
