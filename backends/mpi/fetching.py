"""Fetching: every process gets the pieces that its devices need and that it does not hold.

A piece is a class of a value, or a part of one. Everybody knows who needs what, so a fetch is
one message for each pair of processes that have something for each other.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from shardir.backends.base import Array
from shardir.backends.mpi.input_check import Links
from shardir.backends.mpi.messages import Messages, Posted
from shardir.backends.mpi.places import Classes
from shardir.types import TensorType

Post = Callable[[Mapping[int, Array], Mapping[int, Array]], Posted]
"""Starts to send rows, and to receive others in their places; both by process."""

Piece = TypeVar("Piece", bound=Hashable)


@dataclass(frozen=True)
class Fetch(Generic[Piece]):
    """What this process sends and receives, in order, for each process."""

    type: TensorType
    sends: Mapping[int, tuple[Piece, ...]]
    receives: Mapping[int, tuple[Piece, ...]]
    links: Links
    """Who sends something to whom, among all processes."""

    def start(
        self,
        mine: Callable[[Piece], Array],
        post: Post,
        messages: Messages,
        into: Mapping[Piece, Array] | None = None,
    ) -> "Fetching[Piece]":
        """Send what others need by `post`; `mine` has the pieces that this process holds.

        A piece that comes alone is written where `into` has a place for it, contiguous memory.
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
        return Fetching(self, places, post(rows, places), messages)


@dataclass(frozen=True)
class Fetching(Generic[Piece]):
    """Pieces on their way."""

    fetch: Fetch[Piece]
    places: Mapping[int, Array]
    posted: Posted
    messages: Messages

    def finish(self) -> dict[Piece, Array]:
        """The pieces that have come."""
        self.messages.wait(self.posted)
        return {
            piece: self.places[process][at]
            for process, pieces in self.fetch.receives.items()
            for at, piece in enumerate(pieces)
        }


def fetch_of(
    needs: Mapping[int, Iterable[Piece]],
    number: Callable[[Piece], int],
    classes: Classes,
    type: TensorType,
) -> Fetch[Piece]:
    """The fetch after which each process has what it `needs`; `number` is a piece's class."""
    here = classes.places.here
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
