"""Nonblocking messages between processes, with deadlock detection and timeouts.

A wait tests for completion instead of blocking, for three reasons: a process can stop waiting after
a timeout and report the processes and the operation that it waits for; it can detect that another
process has ended; and if processes outnumber the cores, it yields its core to the others.
"""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, NoReturn
from zlib import crc32

from shardir.backends.base import Array
from shardir.backends.distributed.communicator import (
    LOST_PROCESS_EXIT_CODE,
    Communicator,
    Request,
)
from shardir.backends.distributed.deadlock_detector import DeadlockDetector, ExecutionPoint

POLLS_BEFORE_YIELD = 50
"""Number of tests before a process yields its core."""
SPIN_SECONDS = 0.02
"""Time during which a process with a core of its own tests without a pause."""
NAP_SECONDS = 50e-6
MAX_NAP_SECONDS = 1e-3
STATUS_CHECK_SECONDS = 0.25
"""Interval at which a waiting process reads the status of others."""
ABORT_SECONDS = 5
"""Time that the launcher has to end a process that has called MPI_Abort."""
MAX_LISTED_EXCHANGES = 20
"""Maximum number of finished exchanges that an error lists."""


@dataclass(frozen=True)
class PostedMessages:
    """Messages in flight; `kept` are their send and receive buffers."""

    requests: list[Request]
    sources: tuple[tuple[int, Request], ...]
    targets: tuple[tuple[int, Request], ...]
    kept: tuple[Any, ...]
    tag: int
    what: Callable[[], ExecutionPoint]


@dataclass(frozen=True)
class MessageHeaders:
    """Headers that precede rows, by the process that they are sent to or received from."""

    sent: Mapping[int, Array]
    received: Mapping[int, Array]


NO_HEADERS = MessageHeaders({}, {})


class MessageChannel:
    """Sends and receives arrays of bytes. `hosts` has the host name of each process."""

    def __init__(self, comm: Communicator, hosts: list[str], seconds: float, polite: bool) -> None:
        self.comm, self.hosts = comm, hosts
        self.rank, self.size = comm.rank, comm.size
        self.seconds, self.yields_core = seconds, polite
        self.deadlock_detector = DeadlockDetector(comm.duplicate(), self.process_name)
        self._recent: deque[str] = deque(maxlen=MAX_LISTED_EXCHANGES)
        self._in_flight: dict[int, PostedMessages] = {}
        self._waits: list[PostedMessages] = []

    def duplicate(self) -> "MessageChannel":
        """Return a channel whose tags do not conflict with those of this one."""
        other = copy(self)
        other.comm = self.comm.duplicate()
        return other

    def process_name(self, process: int) -> str:
        """Return the name of a process in errors."""
        return f"process {process} ({self.hosts[process]})"

    def tag(self, *words: object) -> int:
        """Return a tag that is equal for equal words in every process, and usually different
        otherwise."""
        return crc32("\n".join(map(str, words)).encode()) % self.comm.max_tag

    def post(
        self,
        tag: int,
        rows: Mapping[int, Array],
        places: Mapping[int, Array],
        what: Callable[[], ExecutionPoint],
        heads: MessageHeaders = NO_HEADERS,
    ) -> PostedMessages:
        """Start to send `rows[p]` to process p, and to receive into `places[p]` from it.

        All arrays are contiguous and must not be accessed until the messages have been waited for.
        `heads` has headers that precede some rows in the same messages, and buffers for those
        received.
        """
        sources = tuple(
            (source, self.comm.receive(_with_head(heads.received, source, place), source, tag))
            for source, place in places.items()
            if place.nbytes or source in heads.received
        )
        targets = tuple(
            (target, self.comm.send(_with_head(heads.sent, target, row), target, tag))
            for target, row in rows.items()
            if row.nbytes or target in heads.sent
        )
        requests = [request for _, request in (*sources, *targets)]
        posted = PostedMessages(requests, sources, targets, (rows, places, heads), tag, what)
        self._in_flight[id(posted)] = posted
        return posted

    def wait(self, posted: PostedMessages) -> None:
        """Return when the messages have been sent and received; end the job if they are not."""
        if not self.comm.have_completed(posted.requests):
            self._wait(posted)
        del self._in_flight[id(posted)]
        what = posted.what().words
        if not self._recent or self._recent[-1] != what:  # One exchange may take several messages.
            self._recent.append(what)

    def has_finished(self, posted: PostedMessages) -> bool:
        """Return whether messages have been sent and received; if so, they need no wait."""
        if not self.comm.have_completed(posted.requests):
            return False
        self._in_flight.pop(id(posted), None)
        return True

    def wait_for_any(self, posted: Sequence[PostedMessages]) -> None:
        """Return when one of several exchanges has finished; end the job if none can finish."""

        def has_any() -> bool:
            return any(self.comm.have_completed(each.requests) for each in posted)

        if len(posted) == 1:
            self._wait(posted[0])
        elif not has_any():
            with self._waiting_for(posted[0]):
                self._poll(has_any, lambda waited, known: self._check_any(posted, waited))

    def _wait(self, posted: PostedMessages) -> None:
        with self._waiting_for(posted):
            self._poll(
                lambda: self.comm.have_completed(posted.requests),
                lambda waited, known: self._check_status(posted, waited, known),
            )

    @contextmanager
    def _waiting_for(self, posted: PostedMessages) -> Iterator[None]:
        """State, for errors that another thread detects, what this process waits for."""
        self._waits.append(posted)
        try:
            yield
        finally:
            self._waits.pop()

    def _poll(self, done: Callable[[], bool], check: Callable[[float, str], str]) -> None:
        """Return when `done()` is true; `check(seconds, result of the last check)` at intervals."""
        start = time.monotonic()
        look, nap, polls, deadlock = start + STATUS_CHECK_SECONDS, NAP_SECONDS, 0, ""
        lost: frozenset[int] = frozenset()
        while not done():
            polls += 1
            if polls < POLLS_BEFORE_YIELD:
                continue
            now = time.monotonic()
            if (now_lost := self.comm.lost_processes()) != lost:
                lost = now_lost
                self.check_connections()  # The launcher may end this process before the next look.
            if now >= look:
                look = now + STATUS_CHECK_SECONDS
                deadlock = check(now - start, deadlock)
            if (
                not self.yields_core and now - start < SPIN_SECONDS
            ) or polls < 2 * POLLS_BEFORE_YIELD:
                os.sched_yield()
            else:
                self.comm.pause(nap)
                nap = min(1.1 * nap, MAX_NAP_SECONDS)

    def _check_status(self, posted: PostedMessages, waited: float, known: str) -> str:
        """End the job if no process can send the missing messages, or after the timeout.

        Return the reason if no process can send them. A reason that is `known` since the last check
        has left enough time for messages that were sent before it.
        """

        def find_lacking() -> tuple[int, ...]:
            return _find_unfinished(posted.sources)

        self.check_connections()
        deadlock = self.deadlock_detector.find_deadlock(
            find_lacking, self._sent_tags, posted.tag, posted.what()
        )
        if deadlock and deadlock == known:
            self.fail(f"{self._describe_wait(posted)} waits forever: {deadlock}")
        if waited > self.seconds:
            names = ", ".join(map(self.process_name, find_lacking())) or "the receivers"
            self.fail(
                f"{self._describe_wait(posted)} timed out after {self.seconds:g} s, waiting for "
                f"{names}; "
                "if others need longer, set SHARDIR_COMM_TIMEOUT to more seconds"
            )
        return deadlock

    def _check_any(self, posted: Sequence[PostedMessages], waited: float) -> str:
        """End the job if the sender of each exchange has ended, or after the timeout."""
        self.check_connections()
        lacking = [_find_unfinished(each.sources) for each in posted]
        ended = self.deadlock_detector.ended_processes()
        if all(processes and ended.issuperset(processes) for processes in lacking):
            name = self.process_name(lacking[0][0])
            self.fail(
                f"{self._describe_wait(posted[0])} waits forever: {name} has ended its program"
            )
        if waited > self.seconds:
            names = dict.fromkeys(self.process_name(p) for each in lacking for p in each)
            self.fail(
                f"{self._describe_wait(posted[0])} timed out after {self.seconds:g} s, waiting for "
                f"{', '.join(names)}; "
                "if others need longer, set SHARDIR_COMM_TIMEOUT to more seconds"
            )
        return ""

    def check_connections(self) -> None:
        """End the job if the connection to a process has ended before its program."""
        lost = self.comm.lost_processes()
        if lost and (lost := lost - self.deadlock_detector.ended_processes()):
            names = " and ".join(map(self.process_name, sorted(lost)))
            what = f"{self.process_name(self.rank)} stops"
            if self._waits:
                what = f"{self._describe_wait(self._waits[-1])} cannot finish"
            self.fail(f"{what}: {names} was killed, or the connection was lost")

    def _sent_tags(self) -> tuple[tuple[int, int], ...]:
        """Return the receiver and the tag of each message that is being sent."""
        return tuple(
            (target, posted.tag)
            for posted in tuple(self._in_flight.values())
            for target in _find_unfinished(posted.targets)
        )

    def _describe_wait(self, posted: PostedMessages) -> str:
        return f"{self.process_name(self.rank)}: {posted.what().words}"

    def fail(self, message: str) -> NoReturn:
        """End all processes; the message ends with the last exchanges."""
        recent = "".join(f"\n  {each}" for each in self._recent)
        done = f"\nbefore that, this process finished:{recent}" if recent else ""
        end_job(self.comm, f"shardir: {message}{done}", LOST_PROCESS_EXIT_CODE)


def end_job(comm: Communicator, message: str, code: int) -> NoReturn:
    """Print a message and end every process of the job."""
    # If the launcher has ended, its pipes are closed.
    with suppress(OSError, ValueError):
        # One write, so that the lines of processes are not mixed.
        print(f"{message}\n", end="", file=sys.stderr, flush=True)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    # If the network is down, Abort may block while it holds the GIL.
    if hasattr(signal, "alarm"):
        signal.alarm(ABORT_SECONDS)
    comm.abort(code)


def _find_unfinished(requests: Iterable[tuple[int, Request]]) -> tuple[int, ...]:
    """Return the processes whose messages have not been sent or received."""
    return tuple(process for process, request in requests if not request.has_completed())


def _with_head(heads: Mapping[int, Array], process: int, row: Array) -> tuple[Array, ...]:
    """Return the parts of a message: the header of a process, if there is one, and a row."""
    return (heads[process], row) if process in heads else (row,)
