"""Fetching: every process receives the pieces that its devices need and that it does not hold.

A piece is a class of a value, or a part of one. All processes compute which process needs which
piece, so that a fetch is one message for each pair of processes that exchange pieces.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from shardir.backends.base import Array
from shardir.backends.distributed.device_ownership import DeviceClasses
from shardir.backends.distributed.input_check import Links
from shardir.backends.distributed.messages import MessageChannel, PostedMessages
from shardir.ir.types import TensorType

PostMessages = Callable[[Mapping[int, Array], Mapping[int, Array]], PostedMessages]
"""Starts to send rows and to receive others into their buffers; both by process."""

Piece = TypeVar("Piece", bound=Hashable)


@dataclass(frozen=True)
class Fetch(Generic[Piece]):
    """The pieces that this process sends and receives, in order, by process."""

    type: TensorType
    sends: Mapping[int, tuple[Piece, ...]]
    receives: Mapping[int, tuple[Piece, ...]]
    links: Links
    """The pairs of processes that communicate, among all processes."""

    def start(
        self,
        mine: Callable[[Piece], Array],
        post: PostMessages,
        messages: MessageChannel,
        into: Mapping[Piece, Array] | None = None,
    ) -> "PendingFetch[Piece]":
        """Post the sends and receives of this fetch; `mine` returns a piece that this process
        holds.

        A piece that is received alone is written to its contiguous buffer in `into`, if there is
        one.
        """
        rows = {
            process: np.ascontiguousarray(mine(pieces[0]))
            if len(pieces) == 1
            else np.stack([mine(piece) for piece in pieces])
            for process, pieces in self.sends.items()
        }
        places = {
            process: into[pieces[0]].reshape(1, *self.type.shape)
            if into and len(pieces) == 1
            else np.empty((len(pieces), *self.type.shape), self.type.numpy)
            for process, pieces in self.receives.items()
        }
        return PendingFetch(self, places, post(rows, places), messages)


@dataclass(frozen=True)
class PendingFetch(Generic[Piece]):
    """A fetch in flight."""

    fetch: Fetch[Piece]
    places: Mapping[int, Array]
    posted: PostedMessages
    messages: MessageChannel

    def finish(self) -> dict[Piece, Array]:
        """Wait for the pieces and return them."""
        self.messages.wait(self.posted)
        return {
            piece: self.places[process][at]
            for process, pieces in self.fetch.receives.items()
            for at, piece in enumerate(pieces)
        }


def fetch_of(
    needs: Mapping[int, Iterable[Piece]],
    number: Callable[[Piece], int],
    classes: DeviceClasses,
    type: TensorType,
) -> Fetch[Piece]:
    """Return the fetch after which each process has what it `needs`; `number` is a piece's
    class."""
    here = classes.places.this_process
    sends: dict[int, list[Piece]] = {}
    receives: dict[int, list[Piece]] = {}
    links: set[tuple[int, int]] = set()
    for process in classes.places.processes:
        for piece in dict.fromkeys(needs.get(process, ())):
            sender = classes.sender(number(piece), process)
            if sender == process:
                continue
            links.add((sender, process))
            if sender == here:
                sends.setdefault(process, []).append(piece)
            if process == here:
                receives.setdefault(sender, []).append(piece)
    frozen = [{p: tuple(pieces) for p, pieces in each.items()} for each in (sends, receives)]
    return Fetch(type, frozen[0], frozen[1], frozenset(links))
