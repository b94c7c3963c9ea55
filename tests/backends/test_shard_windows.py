"""Parts of devices in one piece of memory."""

import numpy as np

from shardir.backends.shard_windows import ShardWindows, join_shards
from shardir.backends.storage import Storage

WHOLE = np.arange(24.0).reshape(4, 6)
PIECES = ((0, 0), (0, 1), (1, 0), (0, 0))


def windows() -> ShardWindows:
    return ShardWindows(Storage.of(WHOLE), (2, 3), PIECES)


def test_each_device_sees_its_piece() -> None:
    held = windows()
    assert len(held) == 4
    np.testing.assert_array_equal(held[1], WHOLE[:2, 3:])
    np.testing.assert_array_equal(held[2], WHOLE[2:, :3])
    assert held[0] is held[3]
    assert [part.shape for part in held[1:3]] == [(2, 3), (2, 3)]


def test_windows_are_joined_without_a_copy() -> None:
    held = windows()
    assert join_shards(held, PIECES, (4, 6)) is held.storage


def test_other_pieces_are_copied() -> None:
    held = windows()
    pieces = ((0, 0), (1, 0), (0, 1), (0, 0))
    made = join_shards(held, pieces, (4, 6))
    np.testing.assert_array_equal(made.array[:2, :3], WHOLE[:2, :3])
    np.testing.assert_array_equal(made.array[2:, :3], WHOLE[:2, 3:])
    np.testing.assert_array_equal(made.array[:2, 3:], WHOLE[2:, :3])


def test_a_piece_that_is_all_is_taken_as_it_is() -> None:
    assert join_shards([WHOLE, WHOLE], ((0, 0), (0, 0)), (4, 6)).array.base is not None
    assert np.shares_memory(join_shards([WHOLE], ((0, 0),), (4, 6)).array, WHOLE)


def test_numbers_alone_have_no_place() -> None:
    held = ShardWindows(Storage.of(np.array(3.0)), (), ((), ()))
    assert float(held[0]) == float(held[1]) == 3
