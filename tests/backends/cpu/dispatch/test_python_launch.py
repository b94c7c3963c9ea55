"""Launches as Python code, which run programs where the C extension is not installed."""

import ctypes
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.dispatch.launch import (
    ArrayImport,
    LaunchArgument,
    LaunchResult,
    make_launch,
)
from shardir.backends.cpu.threads import memory
from shardir.backends.native import native
from shardir.frontend.arrays.array import Array, from_numpy

pytestmark = pytest.mark.skipif(native is not None, reason="the C extension is installed")

NUMBERS = np.arange(4, dtype=np.float32)
X, Y = from_numpy(NUMBERS), from_numpy(NUMBERS + 10)
SHORT = from_numpy(NUMBERS[:2])


class Program:
    """A program that copies 16 bytes from the first address to the last one."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, *addresses: int) -> None:
        if not all(isinstance(address, int) for address in addresses):
            raise TypeError("an address is an integer")
        self.calls.append(addresses)
        ctypes.memmove(addresses[-1], addresses[0], 16)


def launch_of(
    arguments: list[LaunchArgument],
    results: list[LaunchResult],
    program: Any = None,
    template: tuple[int, ...] = (0, 0, 0),
    sizes: tuple[int, ...] = (16,),
    **options: Any,
) -> Any:
    places = [(len(template) - 1, 0, 0)] if sizes else []
    return make_launch(
        program, Array, template, arguments, places, sizes, results, keep=None, **options
    )


def result(block: int, offset: int = 0, shape: tuple[int, ...] = (4,), part: bool = False) -> Any:
    return LaunchResult(block, offset, shape, np.dtype(np.float32), X.signature, X.sharding, part)


def test_a_launch_with_one_block_and_one_result() -> None:
    program = Program()
    launch = launch_of([LaunchArgument(1, (4,))], [result(0)], program)
    (made,) = launch([X])
    assert np.array_equal(made, NUMBERS)
    assert program.calls == [(X.storage.address, made.storage.address)]
    assert (made.signature, made.sharding) == (X.signature, X.sharding)
    assert (made.storage.shape, made.storage.dtype) == ((4,), np.float32)
    assert repr(made) == repr(X)
    assert not made.is_deleted()
    for other in ([NUMBERS], [1.0], [SHORT]):
        assert launch(other) is None
    gone = from_numpy(NUMBERS)
    gone.delete()
    assert launch([gone]) is None
    assert len(program.calls) == 1
    block = memory.allocate(16)
    (made,) = launch([Y], block)
    assert made.storage.owner is block
    with pytest.raises(TypeError, match="an address is an integer"):
        launch([])
    with pytest.raises(IndexError):
        launch([X, Y])


def test_a_result_at_an_offset_of_its_block() -> None:
    launch = launch_of([LaunchArgument(1)], [result(0, 8, (2,))], Program(), sizes=(16,))
    (made,) = launch([X])
    assert np.array_equal(made.storage.array, NUMBERS[2:])


def test_an_argument_that_the_program_does_not_read() -> None:
    program = Program()
    launch = launch_of([LaunchArgument(-1), LaunchArgument(1)], [result(0)], program)
    (made,) = launch([X, Y])
    assert np.array_equal(made, NUMBERS + 10)
    assert program.calls == [(Y.storage.address, made.storage.address)]
    assert launch([1.0, Y]) is None


def test_a_result_that_is_part_of_an_argument() -> None:
    program = Program()
    part = result(-1, 4, (3,), part=True)
    for run, sizes in ((program, (16,)), (None, ())):
        launch = launch_of([LaunchArgument(1, (4,))], [part], run, sizes=sizes)
        (made,) = launch([X])
        assert np.array_equal(made.storage.array, NUMBERS[1:])
        assert made.storage.owner is X.storage
        gone = from_numpy(NUMBERS)
        gone.delete()
        for other in ([NUMBERS], [SHORT], [gone]):
            assert launch(other) is None
    assert len(program.calls) == 1
    # A part of a part refers to the whole memory.
    (inner,) = launch_of([LaunchArgument(-1)], [result(-1, 4, (2,), part=True)], sizes=())([made])
    assert inner.storage.owner is X.storage
    (whole,) = launch_of([LaunchArgument(-1)], [result(-1)], sizes=())([X])
    assert whole.storage.address == X.storage.address
    assert whole.storage.owner is X.storage.owner


def test_several_results() -> None:
    launch = launch_of([LaunchArgument(1)], [result(0), result(-1)], Program())
    for blocks in ([], [memory.allocate(16)]):
        first, second = launch([X], *blocks)
        assert np.array_equal(first, NUMBERS)
        assert second.storage.address == X.storage.address
        assert [first.storage.owner] == (blocks or [first.storage.owner])


def test_a_result_that_no_program_writes() -> None:
    (made,) = launch_of([LaunchArgument(1)], [result(0)])([X])
    assert made.storage.owner.nbytes == 16


def test_the_python_tier_has_no_launch_for_imports_and_zeros() -> None:
    entry = ArrayImport((4,), np.dtype(np.float64), np.dtype(np.float32))
    assert launch_of([LaunchArgument(1, (4,), entry)], [result(0)], Program()) is None
    assert launch_of([LaunchArgument(1)], [result(0)], Program(), zeros=True) is None
