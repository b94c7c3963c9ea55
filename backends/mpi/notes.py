"""Notes that processes leave one another: I have ended; I wait, for these, with this in hand.

They cost nothing while all goes well. A process that has waited for a while tells those that it
waits for; one that ends tells all. Two processes that wait for each other, neither of which has
sent what the other waits for, will do so for ever, and a message from a process that has ended
will never come: then there is no reason to wait until the time is over.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpi4py import MPI

NOTE = 7
SENT = 4096
"""How many of the last messages sent are remembered."""


@dataclass(frozen=True)
class Note:
    """What a process has to say: for whom it waits, with which tag, and where it is."""

    process: int
    lacking: tuple[int, ...] | None
    tag: int
    where: str


class Notes:
    """The notes that this process writes and reads."""

    def __init__(self, comm: MPI.Intracomm, who: Callable[[int], str]) -> None:
        self.comm, self.who = comm, who
        self._ended: set[int] = set()
        self._waiting: dict[int, Note] = {}
        self._told: tuple[int, frozenset[int]] | None = None
        self._sent: deque[tuple[int, int]] = deque(maxlen=SENT)
        self._posted: list[MPI.Request] = []

    def sent(self, target: int, tag: int) -> None:
        """Remember that a message is on its way."""
        self._sent.append((target, tag))

    def read(self, lacking: Sequence[int], tag: int, where: str) -> str:
        """Why nothing will ever come from some process of `lacking`; empty if it may."""
        self._listen()
        for process in lacking:
            if process in self._ended:
                return f"{self.who(process)} has ended its program"
            note = self._waiting.get(process)
            crossed = (
                note is not None
                and note.lacking is not None
                and self.comm.Get_rank() in note.lacking
                and note.tag != tag
                and (process, note.tag) not in self._sent
            )
            if note is not None and crossed:
                return (
                    f"{self.who(process)} is at {note.where}; all processes must run the same "
                    "programs in the same order"
                )
        told = (tag, frozenset(lacking))
        if told != self._told:
            self._told = told
            note = Note(self.comm.Get_rank(), tuple(lacking), tag, where)
            self._write(lacking, note)
        return ""

    def leave(self) -> None:
        """Tell all others that this process has come to its end."""
        others = [p for p in range(self.comm.Get_size()) if p != self.comm.Get_rank()]
        self._write(others, Note(self.comm.Get_rank(), None, 0, ""))

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
            if note.lacking is None:
                self._ended.add(note.process)
            else:
                self._waiting[note.process] = note
