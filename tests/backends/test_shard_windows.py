"""Shards of devices as windows of one memory block."""

import numpy as np

from shardir.backends.shard_windows import ShardWindows, join_shards
from shardir.backends.storage import Storage

UNSHARDED = np.arange(24.0).reshape(4, 6)
OFFSETS = ((0, 0), (0, 1), (1, 0), (0, 0))


def windows() -> ShardWindows:
    return ShardWindows(Storage.of(UNSHARDED), (2, 3), OFFSETS)


def test_each_window_shows_its_shard() -> None:
    shards = windows()
    assert len(shards) == 4
    np.testing.assert_array_equal(shards[1], UNSHARDED[:2, 3:])
    np.testing.assert_array_equal(shards[2], UNSHARDED[2:, :3])
    assert shards[0] is shards[3]
    assert [part.shape for part in shards[1:3]] == [(2, 3), (2, 3)]


def test_joining_unchanged_windows_makes_no_copy() -> None:
    shards = windows()
    assert join_shards(shards, OFFSETS, (4, 6)) is shards.storage


def test_windows_at_other_offsets_are_copied() -> None:
    shards = windows()
    offsets = ((0, 0), (1, 0), (0, 1), (0, 0))
    joined = join_shards(shards, offsets, (4, 6))
    np.testing.assert_array_equal(joined.array[:2, :3], UNSHARDED[:2, :3])
    np.testing.assert_array_equal(joined.array[2:, :3], UNSHARDED[:2, 3:])
    np.testing.assert_array_equal(joined.array[:2, 3:], UNSHARDED[2:, :3])


def test_a_shard_of_the_full_shape_is_used_without_a_copy() -> None:
    assert join_shards([UNSHARDED, UNSHARDED], ((0, 0), (0, 0)), (4, 6)).array.base is not None
    assert np.shares_memory(join_shards([UNSHARDED], ((0, 0),), (4, 6)).array, UNSHARDED)


def test_scalars_have_windows_without_offsets() -> None:
    shards = ShardWindows(Storage.of(np.array(3.0)), (), ((), ()))
    assert float(shards[0]) == float(shards[1]) == 3
