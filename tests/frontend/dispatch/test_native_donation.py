"""Quick calls with donated and static arguments: as the first call, only sooner."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import lax
from shardir.frontend.arrays.array import Array
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.runnable import Runnable
from shardir.frontend.errors import ArgumentError, DeletedArrayError
from shardir.frontend.pytree import tree
from tests.call_count import count_calls
from tests.process_control.signals import Interrupted, alarm
from tests.process_control.threads import at_once

SIZE = 1 << 13


def made(number: float = 1) -> Array:
    """An array whose memory is the pool's, and is nobody else's."""
    array: Array = jit(lambda: snp.full(SIZE, number, np.float32))()
    return array


def address(x: Array) -> int:
    found: int = x.storage.address
    return found


def test_each_call_writes_over_what_it_is_given() -> None:
    step = jit(lambda x, y: (x + y, y * 2), donate_argnums=0)
    x, y = made(), made(2)
    place = address(x)
    before = x
    x, z = step(x, y)
    assert before.is_deleted()
    assert address(x) == place
    np.testing.assert_array_equal(z, np.full(SIZE, 4))
    for _ in range(4):
        x, z = step(x, y)
        assert address(x) == place
        assert address(z) != address(y)
    np.testing.assert_array_equal(x, np.full(SIZE, 11))
    np.testing.assert_array_equal(y, np.full(SIZE, 2))


def test_an_array_that_is_kept_is_not_written_over_though_it_was_given_twice_before() -> None:
    step = jit(lambda x, y: (x + 1, y * 2), donate_argnums=0)
    both = made(3)
    first, second = step(both, both)
    np.testing.assert_array_equal(first, np.full(SIZE, 4))
    np.testing.assert_array_equal(second, np.full(SIZE, 6))
    for _ in range(3):
        kept = made(5)
        first, second = step(made(), kept)
        assert not kept.is_deleted()
        np.testing.assert_array_equal(kept, np.full(SIZE, 5))
        np.testing.assert_array_equal(second, np.full(SIZE, 10))
    both = made(3)
    first, second = step(both, both)
    np.testing.assert_array_equal(first, np.full(SIZE, 4))
    np.testing.assert_array_equal(second, np.full(SIZE, 6))


def test_memory_that_others_see_stays() -> None:
    step = jit(lambda x: x + 1, donate_argnums=0)
    step(made())
    x = made()
    seen = np.asarray(x)
    step(x)
    np.testing.assert_array_equal(seen, np.ones(SIZE))
    x = made()
    other = Array(x.signature, x.sharding, x.storage)
    y = step(x)
    assert address(y) != address(other)
    np.testing.assert_array_equal(other, np.ones(SIZE))


def test_what_was_donated_is_gone_and_says_where() -> None:
    def advance(x: Any) -> Any:
        return x + 1

    step = jit(advance, donate_argnames="x")
    step(made())
    x = made()
    step(x)
    with pytest.raises(DeletedArrayError, match=r"has been donated to advance at .*native_donation"):
        x + 1
    with pytest.raises(DeletedArrayError, match="has been donated to advance"):
        step(x)


def test_python_does_no_more_for_more_arrays() -> None:
    def calls(count: int, **how: Any) -> int:
        fun = jit(lambda kept, n, given: tree.map(lambda x: x + n, [kept, given]), **how)
        kept = [snp.ones(8) for _ in range(count)]
        fun(kept, 3, snp.ones(8))
        given = snp.ones(8)
        return count_calls(lambda: fun(kept, 3, given))

    how: dict[str, Any] = {"static_argnums": 1, "donate_argnums": 2}
    calls(1, **how)  # where things stand in the file is found out once
    assert calls(10, **how) == calls(2, **how)
    slow = jit(lambda x, n: x + n, static_argnums=1)
    x = made()
    slow(x, 3)
    assert count_calls(lambda: slow(x, 3)) < count_calls(lambda: slow(np.ones(SIZE), 3))


def test_static_arguments_that_are_equal_to_python_are_told_apart() -> None:
    seen: list[Any] = []

    def f(x: Any, n: Any, *, word: str = "") -> Any:
        seen.append((n, word))
        return x + 1 if n is True else x + n

    fun = jit(f, static_argnums=1, static_argnames="word")
    x = made()
    for _ in range(3):
        for number in (1, True, 1.0, 2):
            for word in ("a", "b"):
                y = fun(x, number, word=word)
                np.testing.assert_array_equal(y, np.full(SIZE, 1 + number))
    assert len(seen) == 8
    with pytest.raises(ArgumentError, match=r"static argument n of f is \[1\] of type list"):
        fun(x, [1])


def test_no_thread_finds_a_program_before_it_knows_what_is_donated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    donate, coming, came = Runnable.donate, [made()], []
    step = jit(lambda x: x + 1, donate_argnums=0)

    def told(program: Runnable, numbers: Sequence[int]) -> None:
        while coming:  # What another thread does meanwhile.
            came.append(coming.pop())
            step(came[0])
        donate(program, numbers)

    monkeypatch.setattr(Runnable, "donate", told)
    x = made()
    step(x)
    assert x.is_deleted()
    assert came[0].is_deleted()


def test_after_an_interruption_what_was_donated_is_gone() -> None:
    def endless(x: Any, y: Any) -> Any:
        return lax.while_loop(lambda z: z[0] < 9, lambda z: z * 0.5, x + y)

    step = jit(endless, donate_argnums=0)
    np.testing.assert_array_equal(step(made(9), made(9)), np.full(SIZE, 18))
    x, y = made(), made()
    with pytest.raises(Interrupted), alarm(0.3):
        step(x, y)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, np.ones(SIZE))


def test_threads_donate_arrays_of_their_own() -> None:
    step = jit(lambda x: x + 1, donate_argnums=0)
    step(made())
    faults: list[Any] = []

    def call(start: int) -> None:
        x = made(start)
        for _ in range(100):
            x = step(x)
        if not (np.asarray(x) == start + 100).all():
            faults.append(x)

    at_once(call, range(0, 4000, 1000))
    assert not faults


def test_what_is_donated_and_returned_stays() -> None:
    step = jit(lambda x, y: (x, x + y, y), donate_argnums=0)
    x, y = made(3), made(2)
    for _ in range(4):
        place = address(x)
        x, z, same = step(x, y)
        assert address(x) == place
        assert address(same) == address(y)
        assert address(z) not in (address(x), address(y))
        np.testing.assert_array_equal(x, np.full(SIZE, 3))
        np.testing.assert_array_equal(z, np.full(SIZE, 5))
