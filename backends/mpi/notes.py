"""Notes that processes leave one another: I have ended; I wait, for these, in this place.

They cost nothing while all goes well. A process that has waited for a while tells those that it
waits for; one that ends tells all. Two processes that wait for each other in different places will
do so for ever, and a message from a process that has ended will never come: then there is no
reason to wait until the time is over.

A note may be old: who wrote it may have gone on since. So a process that finds one in which another
waits for it asks again. What that one answers comes after everything that was sent to it before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

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
        self._ended: set[int] = set()
        self._waiting: dict[int, Note] = {}
        self._told: Note | None = None
        self._asked: tuple[int, frozenset[int]] = (0, frozenset())
        self._posted: list[MPI.Request] = []

    def read(self, lacking: Sequence[int], tag: int, where: Place) -> str:
        """Why nothing will ever come from some process of `lacking`; empty if it may."""
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

    def leave(self) -> None:
        """Tell all others that this process has come to its end."""
        others = [process for process in range(self.comm.Get_size()) if process != self.rank]
        self._write(others, Note(self.rank, Kind.HAS_ENDED))

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
            if note.kind is Kind.HAS_ENDED:
                self._ended.add(note.process)
            elif note.kind is Kind.WAITS:
                self._waiting[note.process] = note
            else:
                self._told = None  # told again
