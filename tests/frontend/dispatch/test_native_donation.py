"""Donated and static arguments on the native dispatch path."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import lax
from shardir.frontend.arrays.array import Array
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.programs.runnable import Runnable
from shardir.frontend.errors import ArgumentError, DeletedArrayError
from shardir.frontend.pytree import tree
from tests.call_count import count_calls
from tests.native_tier import needs_native
from tests.process_control.signals import Interrupted, alarm
from tests.process_control.threads import run_concurrently

SIZE = 1 << 13


def make_array(number: float = 1) -> Array:
    """Return an array that is the only owner of memory of the pool."""
    array: Array = jit(lambda: snp.full(SIZE, number, np.float32))()
    return array


def address(x: Array) -> int:
    found: int = x.storage.address
    return found


def test_each_call_reuses_the_memory_of_donated_arguments() -> None:
    step = jit(lambda x, y: (x + y, y * 2), donate_argnums=0)
    x, y = make_array(), make_array(2)
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


def test_an_array_that_is_not_donated_is_not_overwritten() -> None:
    """An earlier call passed the same array for the donated and for the other parameter."""
    step = jit(lambda x, y: (x + 1, y * 2), donate_argnums=0)
    both = make_array(3)
    first, second = step(both, both)
    np.testing.assert_array_equal(first, np.full(SIZE, 4))
    np.testing.assert_array_equal(second, np.full(SIZE, 6))
    for _ in range(3):
        kept = make_array(5)
        first, second = step(make_array(), kept)
        assert not kept.is_deleted()
        np.testing.assert_array_equal(kept, np.full(SIZE, 5))
        np.testing.assert_array_equal(second, np.full(SIZE, 10))
    both = make_array(3)
    first, second = step(both, both)
    np.testing.assert_array_equal(first, np.full(SIZE, 4))
    np.testing.assert_array_equal(second, np.full(SIZE, 6))


def test_memory_with_other_owners_is_not_overwritten() -> None:
    step = jit(lambda x: x + 1, donate_argnums=0)
    step(make_array())
    x = make_array()
    seen = np.asarray(x)
    step(x)
    np.testing.assert_array_equal(seen, np.ones(SIZE))
    x = make_array()
    other = Array(x.signature, x.sharding, x.storage)
    y = step(x)
    assert address(y) != address(other)
    np.testing.assert_array_equal(other, np.ones(SIZE))


def test_the_error_of_a_donated_array_states_the_call() -> None:
    def advance(x: Any) -> Any:
        return x + 1

    step = jit(advance, donate_argnames="x")
    step(make_array())
    x = make_array()
    step(x)
    with pytest.raises(
        DeletedArrayError, match=r"has been donated to advance at .*native_donation"
    ):
        x + 1
    with pytest.raises(DeletedArrayError, match="has been donated to advance"):
        step(x)


@needs_native
def test_the_number_of_python_calls_is_independent_of_the_number_of_arrays() -> None:
    def calls(count: int, **how: Any) -> int:
        fun = jit(lambda kept, n, given: tree.map(lambda x: x + n, [kept, given]), **how)
        kept = [snp.ones(8) for _ in range(count)]
        fun(kept, 3, snp.ones(8))
        given = snp.ones(8)
        return count_calls(lambda: fun(kept, 3, given))

    how: dict[str, Any] = {"static_argnums": 1, "donate_argnums": 2}
    calls(1, **how)  # The first call computes the source location, which is cached.
    assert calls(10, **how) == calls(2, **how)
    slow = jit(lambda x, n: x + n, static_argnums=1)
    x = make_array()
    slow(x, 3)
    assert count_calls(lambda: slow(x, 3)) < count_calls(lambda: slow(np.ones(SIZE), 3))


def test_equal_static_arguments_of_different_types_have_separate_programs() -> None:
    seen: list[Any] = []

    def f(x: Any, n: Any, *, word: str = "") -> Any:
        seen.append((n, word))
        return x + 1 if n is True else x + n

    fun = jit(f, static_argnums=1, static_argnames="word")
    x = make_array()
    for _ in range(3):
        for number in (1, True, 1.0, 2):
            for word in ("a", "b"):
                y = fun(x, number, word=word)
                np.testing.assert_array_equal(y, np.full(SIZE, 1 + number))
    assert len(seen) == 8
    with pytest.raises(ArgumentError, match=r"static argument n of f is \[1\] of type list"):
        fun(x, [1])


def test_a_program_is_published_after_its_donation_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    donate, coming, came = Runnable.donate, [make_array()], []
    step = jit(lambda x: x + 1, donate_argnums=0)

    def call_then_donate(program: Runnable, numbers: Sequence[int]) -> None:
        while coming:  # The call that another thread makes concurrently.
            came.append(coming.pop())
            step(came[0])
        donate(program, numbers)

    monkeypatch.setattr(Runnable, "donate", call_then_donate)
    x = make_array()
    step(x)
    assert x.is_deleted()
    assert came[0].is_deleted()


def test_arrays_donated_to_an_interrupted_call_are_deleted() -> None:
    def endless(x: Any, y: Any) -> Any:
        return lax.while_loop(lambda z: z[0] < 9, lambda z: z * 0.5, x + y)

    step = jit(endless, donate_argnums=0)
    np.testing.assert_array_equal(step(make_array(9), make_array(9)), np.full(SIZE, 18))
    x, y = make_array(), make_array()
    with pytest.raises(Interrupted), alarm(0.3):
        step(x, y)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, np.ones(SIZE))


def test_threads_donate_different_arrays_concurrently() -> None:
    step = jit(lambda x: x + 1, donate_argnums=0)
    step(make_array())
    faults: list[Any] = []

    def call(start: int) -> None:
        x = make_array(start)
        for _ in range(100):
            x = step(x)
        if not (np.asarray(x) == start + 100).all():
            faults.append(x)

    run_concurrently(call, range(0, 4000, 1000))
    assert not faults


def test_a_donated_argument_may_be_returned() -> None:
    step = jit(lambda x, y: (x, x + y, y), donate_argnums=0)
    x, y = make_array(3), make_array(2)
    for _ in range(4):
        place = address(x)
        x, z, same = step(x, y)
        assert address(x) == place
        assert address(same) == address(y)
        assert address(z) not in (address(x), address(y))
        np.testing.assert_array_equal(x, np.full(SIZE, 3))
        np.testing.assert_array_equal(z, np.full(SIZE, 5))
