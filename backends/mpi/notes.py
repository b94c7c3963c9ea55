"""Notes that processes leave one another: I have ended; I wait, for these, in this place.

They cost nothing while all goes well. A process that has waited for a while tells those that it
waits for; one that ends tells all. Two processes that wait for each other in different places will
do so for ever, and a message from a process that has ended will never come: then there is no
reason to wait until the time is over.

A process that has ended waits for all others, who may have work of their own left. They tell it now
and then, from a thread beside that work, that they go on.

A note may be old: who wrote it may have gone on since. So a process that finds one in which another
waits for it asks again. What that one answers comes after everything that was sent to it before.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import RLock

from mpi4py import MPI

from shardir.backends.mpi.agreement import Identity, difference

NOTE = 7


@dataclass(frozen=True)
class Place:
    """Where a process is: in words, and in which program, if it is in one."""

    words: str
    program: Identity | None = None


class Kind(Enum):
    """What a note says."""

    WAITS = "waits"
    ASKS = "asks"
    HAS_ENDED = "has ended"
    GOES_ON = "goes on"


@dataclass(frozen=True)
class Note:
    """What a process has to say: for whom it waits, with which tag, and where it is."""

    process: int
    kind: Kind
    lacking: tuple[int, ...] = ()
    tag: int = 0
    where: Place = Place("")


class Notes:
    """The notes that this process writes and reads."""

    def __init__(self, comm: MPI.Intracomm, who: Callable[[int], str]) -> None:
        self.comm, self.who, self.rank = comm, who, comm.Get_rank()
        self._lock = RLock()
        self._ended: set[int] = set()
        self._heard: dict[int, float] = {}
        self._waiting: dict[int, Note] = {}
        self._told: Note | None = None
        self._asked: tuple[int, frozenset[int]] = (0, frozenset())
        self._posted: list[MPI.Request] = []

    def read(self, lacking: Sequence[int], tag: int, where: Place) -> str:
        """Why nothing will ever come from some process of `lacking`; empty if it may."""
        with self._lock:
            return self._read(lacking, tag, where)

    def _read(self, lacking: Sequence[int], tag: int, where: Place) -> str:
        self._listen()
        asked = self._asked[1] if self._asked[0] == tag else frozenset()
        for process in lacking:
            if process in self._ended:
                return f"{self.who(process)} has ended its program"
            note = self._waiting.get(process)
            if note is None or self.rank not in note.lacking or note.tag == tag:
                continue
            if process in asked:
                return f"{self.who(process)} is at {note.where.words}; {self._why(where, note)}"
            asked |= {process}
            del self._waiting[process]
            self._write([process], Note(self.rank, Kind.ASKS))
        self._asked = tag, asked
        mine = Note(self.rank, Kind.WAITS, tuple(lacking), tag, where)
        if mine != self._told:
            self._told = mine
            self._write(lacking, mine)
        return ""

    def _why(self, where: Place, note: Note) -> str:
        """What is wrong where two processes wait for each other."""
        told, other = "", note.where.program
        if where.program is not None and other is not None:
            who = self.who(self.rank), self.who(note.process)
            told = difference(where.program, other, who)
        return told or "all processes must run the same programs in the same order"

    def go_on(self) -> None:
        """Tell those who have ended that this process has not."""
        with self._lock:
            self._listen()
            self._write(sorted(self._ended), Note(self.rank, Kind.GOES_ON))

    def leave(self) -> None:
        """Tell all others that this process has come to its end."""
        others = [process for process in range(self.comm.Get_size()) if process != self.rank]
        self._heard = dict.fromkeys(others, time.monotonic())
        self._write(others, Note(self.rank, Kind.HAS_ENDED))

    def silent(self, seconds: float) -> list[int]:
        """Who has not ended, and has said nothing for so long since this process has."""
        since = time.monotonic() - seconds
        return [p for p, at in self._heard.items() if p not in self._ended and at < since]

    def all_have_left(self) -> bool:
        """Whether all others have said so, and have been told."""
        self._listen()
        self._posted = [request for request in self._posted if not request.Test()]
        return len(self._ended) == self.comm.Get_size() - 1 and not self._posted

    def _write(self, targets: Sequence[int], note: Note) -> None:
        self._posted = [request for request in self._posted if not request.Test()]
        self._posted += [self.comm.isend(note, target, NOTE) for target in targets]

    def _listen(self) -> None:
        while self.comm.Iprobe(MPI.ANY_SOURCE, NOTE):
            note: Note = self.comm.recv(source=MPI.ANY_SOURCE, tag=NOTE)
            self._heard[note.process] = time.monotonic()
            if note.kind is Kind.HAS_ENDED:
                self._ended.add(note.process)
            elif note.kind is Kind.WAITS:
                self._waiting[note.process] = note
            elif note.kind is Kind.ASKS:
                self._told = None  # told again
