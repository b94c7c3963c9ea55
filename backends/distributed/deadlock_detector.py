"""Deadlock detection: status messages that processes send to each other.

Status messages cost nothing while no process waits long. A process that has waited for some time
sends its status to the processes that it waits for; a process that ends sends it to all. If two
processes wait for each other in different operations, or a process waits for one that has ended,
the message can never arrive, and the process need not wait for the timeout.

A process that has ended waits until all others have ended. They send it their status at intervals,
from a heartbeat thread, while they are still running.

A status may be outdated: its sender may have continued since. A process that reads the status of a
process that waits for it therefore requests another one. The reply arrives after all messages that
were sent before it. It states what its sender lacks after the request has arrived, and which
messages it is still sending: a large message of a started collective may not have arrived while
both processes wait.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import RLock

from shardir.backends.distributed.communicator import Communicator, Request
from shardir.backends.distributed.program_agreement import ProgramIdentity, describe_difference

STATUS_TAG = 7


@dataclass(frozen=True)
class ExecutionPoint:
    """The operation that a process executes: a description, and its program if there is one."""

    words: str
    program: ProgramIdentity | None = None


class StatusKind(Enum):
    """The kind of a status message."""

    WAITING = "waiting"
    REQUEST = "request"
    ENDED = "ended"
    RUNNING = "running"


@dataclass(frozen=True)
class Status:
    """The status of a process: the processes that it waits for, the tag, the receivers and tags of
    the messages that it is sending, and its operation."""

    process: int
    kind: StatusKind
    lacking: tuple[int, ...] = ()
    tag: int = 0
    sending: tuple[tuple[int, int], ...] = ()
    where: ExecutionPoint = ExecutionPoint("")


class DeadlockDetector:
    """Sends and receives the status messages of this process."""

    def __init__(self, comm: Communicator, who: Callable[[int], str]) -> None:
        self.comm, self.who, self.rank = comm, who, comm.rank
        self._lock = RLock()
        self._ended: set[int] = set()
        self._last_status_seconds: dict[int, float] = {}
        self._waiting: dict[int, Status] = {}
        self._last_status: Status | None = None
        self._requested: tuple[int, frozenset[int]] = (0, frozenset())
        self._posted: list[Request] = []

    def find_deadlock(
        self,
        find_lacking: Callable[[], tuple[int, ...]],
        find_sending: Callable[[], tuple[tuple[int, int], ...]],
        tag: int,
        where: ExecutionPoint,
    ) -> str:
        """Return why a message with a tag cannot arrive; empty if it can.

        The functions return the processes from which this message has not arrived, and the
        receivers and tags of the messages that are being sent.
        """
        with self._lock:
            self._listen()
            # A reply must not list a message that has arrived before the request.
            return self._find_deadlock(find_lacking(), find_sending(), tag, where)

    def ended_processes(self) -> frozenset[int]:
        """Return the processes that have announced their end."""
        with self._lock:
            self._listen()
            return frozenset(self._ended)

    def _find_deadlock(
        self,
        lacking: tuple[int, ...],
        sending: tuple[tuple[int, int], ...],
        tag: int,
        where: ExecutionPoint,
    ) -> str:
        requested = self._requested[1] if self._requested[0] == tag else frozenset()
        for process in lacking:
            if process in self._ended:
                return f"{self.who(process)} has ended its program"
            status = self._waiting.get(process)
            if status is None or self.rank not in status.lacking or status.tag == tag:
                continue
            if (process, status.tag) in sending or (self.rank, tag) in status.sending:
                continue
            if process in requested:
                reason = self._deadlock_reason(where, status)
                return f"{self.who(process)} is at {status.where.words}; {reason}"
            requested |= {process}
            del self._waiting[process]
            self._write([process], Status(self.rank, StatusKind.REQUEST))
        self._requested = tag, requested
        mine = Status(self.rank, StatusKind.WAITING, lacking, tag, sending, where)
        if mine != self._last_status:
            self._last_status = mine
            self._write(lacking, mine)
        return ""

    def _deadlock_reason(self, where: ExecutionPoint, status: Status) -> str:
        """Return the error if two processes wait for each other."""
        reason, other = "", status.where.program
        if where.program is not None and other is not None:
            who = self.who(self.rank), self.who(status.process)
            reason = describe_difference(where.program, other, who)
        return reason or "all processes must run the same programs in the same order"

    def send_heartbeat(self) -> None:
        """Send the status that this process is running to the processes that have ended."""
        with self._lock:
            self._listen()
            self._write(sorted(self._ended), Status(self.rank, StatusKind.RUNNING))

    def announce_end(self) -> None:
        """Send the status that this process has ended to all others."""
        others = [process for process in range(self.comm.size) if process != self.rank]
        self._last_status_seconds = dict.fromkeys(others, time.monotonic())
        self._write(others, Status(self.rank, StatusKind.ENDED))

    def silent_processes(self, seconds: float) -> list[int]:
        """Return the processes that have not ended, and have sent no status for `seconds`."""
        since = time.monotonic() - seconds
        return [
            p for p, at in self._last_status_seconds.items() if p not in self._ended and at < since
        ]

    def has_all_ended(self) -> bool:
        """Return whether all others have ended, and all status messages have been sent."""
        self._listen()
        self._posted = [each for each in self._posted if not self.comm.have_completed([each])]
        return len(self._ended) == self.comm.size - 1 and not self._posted

    def _write(self, targets: Sequence[int], status: Status) -> None:
        self._posted = [each for each in self._posted if not self.comm.have_completed([each])]
        self._posted += [self.comm.send_object(status, target, STATUS_TAG) for target in targets]

    def _listen(self) -> None:
        while (status := self.comm.receive_object(STATUS_TAG)) is not None:
            assert isinstance(status, Status)
            self._last_status_seconds[status.process] = time.monotonic()
            if status.kind is StatusKind.ENDED:
                self._ended.add(status.process)
            elif status.kind is StatusKind.WAITING:
                self._waiting[status.process] = status
            elif status.kind is StatusKind.REQUEST:
                self._last_status = None  # The next read sends the status again.
