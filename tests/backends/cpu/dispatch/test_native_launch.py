"""Launches of the C extension: imports and zeros need memory that native code allocates."""

import numpy as np
import pytest

from shardir.backends.base import Launch
from shardir.backends.cpu.dispatch.launch import (
    ArrayImport,
    LaunchArgument,
    LaunchResult,
    make_launch,
)
from shardir.backends.cpu.threads.memory_mapping import CAN_RESET_PAGES
from shardir.backends.native import native
from shardir.frontend.arrays.array import Array, from_numpy

pytestmark = pytest.mark.skipif(native is None, reason="needs the C extension")

F32 = np.dtype(np.float32)
X = from_numpy(np.arange(4, dtype=F32))
HUGE_ELEMENTS = 1 << 40


def launch_of(
    arguments: list[LaunchArgument], block: int, count: int, zeros: bool = False
) -> Launch | None:
    """Return a launch with a result of `count` elements in a block, or in an argument below 0."""
    sizes = [] if block < 0 else [4 * count]
    result = LaunchResult(block, 0, (count,), F32, X.signature, X.sharding)
    return make_launch(None, Array, (), arguments, (), sizes, [result], None, zeros)


@pytest.mark.parametrize(("count", "is_launched"), [(4, True), (HUGE_ELEMENTS, False)])
def test_imports_of_small_arrays(count: int, is_launched: bool) -> None:
    entry = ArrayImport((count,), F32, F32)
    launch = launch_of([LaunchArgument(-1, entry=entry)], -1, count)
    assert (launch is not None) == is_launched
    # An argument that is no import needs no memory.
    assert launch_of([LaunchArgument(-1)], -1, count) is not None


@pytest.mark.skipif(not CAN_RESET_PAGES, reason="there are blocks of zeros on Linux alone")
@pytest.mark.parametrize(
    ("count", "zeros", "is_launched"),
    [(4, False, True), (4, True, False), (1 << 20, True, True), (HUGE_ELEMENTS, False, True)],
)
def test_zeros_of_large_arrays(count: int, zeros: bool, is_launched: bool) -> None:
    """Blocks of any size may hold other values: Python code allocates those without a list."""
    launch = launch_of([], 0, count, zeros)
    assert (launch is not None) == is_launched
    if zeros and launch is not None:
        (made,) = launch([]) or []
        assert not made.storage.array.any()


def test_an_import_copies_the_elements() -> None:
    launch = launch_of([LaunchArgument(-1, entry=ArrayImport((4,), F32, F32))], -1, 4)
    assert launch is not None
    given = np.arange(4, dtype=F32)
    (made,) = launch([given]) or []
    given[:] = 7
    np.testing.assert_array_equal(made, np.arange(4))
