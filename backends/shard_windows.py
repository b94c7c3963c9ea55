"""The shards of several devices as windows of one storage."""

from collections.abc import Sequence
from typing import Any, TypeGuard, final, overload

import numpy as np

from shardir.backends.base import Array, Shards
from shardir.backends.storage import Storage

ShardIndex = tuple[int, ...]
"""The index of a shard in each dimension."""


@final
class ShardWindows(Sequence[Array]):
    """Parts of `shape` of a storage: each device's part is its index in `pieces`.

    Devices that hold the same part share an array.
    """

    __slots__ = ("_arrays", "shape", "shard_indices", "storage")

    def __init__(
        self, storage: Storage, shape: tuple[int, ...], pieces: Sequence[ShardIndex]
    ) -> None:
        self.storage, self.shape, self.shard_indices = storage, shape, pieces
        self._arrays: dict[ShardIndex, Array] = {}

    def __len__(self) -> int:
        return len(self.shard_indices)

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...
    def __getitem__(self, index: int | slice) -> Array | list[Array]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        piece = self.shard_indices[index]
        if piece not in self._arrays:
            self._arrays[piece] = self.storage.array[_window_index(piece, self.shape)]
        return self._arrays[piece]


def _window_index(piece: ShardIndex, shape: Sequence[int]) -> tuple[Any, ...]:
    """Return the index expression of a part of this shape."""
    return (..., *(slice(at * n, at * n + n) for at, n in zip(piece, shape, strict=True)))


def is_windows_of(
    shards: Shards, pieces: Sequence[ShardIndex], shape: tuple[int, ...]
) -> TypeGuard[ShardWindows]:
    """Return whether the shards are windows of a storage of `shape` with these indices."""
    return (
        isinstance(shards, ShardWindows)
        and shards.storage.shape == shape
        and shards.shard_indices == pieces
    )


def fill_windows(whole: Array, shards: Shards, pieces: Sequence[ShardIndex]) -> None:
    """Write the shard of each device to its window."""
    for piece, shard in dict(zip(pieces, shards, strict=True)).items():
        whole[_window_index(piece, shard.shape)] = shard


def join_shards(shards: Shards, pieces: Sequence[ShardIndex], shape: tuple[int, ...]) -> Storage:
    """Return a storage of `shape` in which each device's shard is its window.

    It is the storage of the shards if they are exactly its windows, otherwise a copy.
    """
    if is_windows_of(shards, pieces, shape):
        return shards.storage
    if shards[0].shape == shape:
        return Storage.of(shards[0])
    whole = np.empty(shape, shards[0].dtype)
    fill_windows(whole, shards, pieces)
    return Storage.of(whole)
