"""The communication of this process with the other processes of an MPI job."""

import os
import socket
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NoReturn
from zlib import crc32

import numpy as np

from shardir.backends.base import Array, PendingMessage, ProcessLink
from shardir.backends.cpu.threads.workers import share_cores
from shardir.backends.distributed.communicator import LOST_PROCESS_EXIT_CODE, Communicator
from shardir.backends.distributed.deadlock_detector import ExecutionPoint
from shardir.backends.distributed.heartbeat import Heartbeat
from shardir.backends.distributed.messages import MessageChannel, PostedMessages, end_job
from shardir.backends.distributed.program_agreement import (
    DisagreementError,
    ProgramIdentity,
    check_agreement,
)

END_POLL_SECONDS = 1e-3
MAX_DESCRIPTION_CHARACTERS = 200
"""Maximum characters of the description of an operation that is sent to other processes."""


class PostedMessage(PendingMessage):
    """A message in flight."""

    def __init__(self, channel: MessageChannel, posted: PostedMessages, received: Array) -> None:
        self.channel, self.posted, self.received = channel, posted, received

    def has_finished(self) -> bool:
        return self.channel.has_finished(self.posted)


NO_BYTES: Array = np.empty(0, np.uint8)


class World(ProcessLink):
    """The link to all processes of the job."""

    def __init__(self, comm: Communicator, seconds: float, *, has_launcher: bool) -> None:
        self.comm = comm
        hosts = [str(host) for host in comm.allgather(socket.gethostname())]
        sharing = _processes_sharing_cores(comm, hosts)
        polite = sharing > _available_cores()
        share_cores(sharing)
        self.messages = MessageChannel(comm, hosts, seconds, polite)
        self._tagged = self.messages.duplicate()
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._known: set[str] = set()
        self._beginning: ProgramIdentity | None = None
        self._process = os.getpid()
        # A process without a launcher may outlive the shell that started it.
        self._launcher = os.getppid() if has_launcher else None
        interval = min(comm.heartbeat_seconds, seconds / 4)
        has_heartbeat = self.size > 1 and comm.is_thread_safe
        self._heartbeat = Heartbeat(self._beat, interval) if has_heartbeat else None

    @property
    def index(self) -> int:
        """The rank of this process."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """The number of processes."""
        return self.comm.size

    def process_name(self, process: int) -> str:
        return self.messages.process_name(process)

    def count(self, *words: object) -> int:
        """Return how often these words have been counted before, and count them."""
        self._counts[words] += 1
        return self._counts[words] - 1

    def agree(self, identity: ProgramIdentity, processes: tuple[int, ...]) -> None:
        """Check, once for each program, that all of its processes have the same program."""
        if identity.digest not in self._known:
            self._beginning = identity.brief
            try:
                check_agreement(identity, processes, self)
            finally:
                self._beginning = None
            self._known.add(identity.digest)

    def gather(
        self, row: bytes, what: str, processes: tuple[int, ...] | None = None
    ) -> list[bytes]:
        members = tuple(range(self.size)) if processes is None else processes
        number = self.count("gather", members)
        sizes = self._exchange_rows(
            members, ("size", number), np.array([len(row), crc32(what.encode())]), {}, what
        )
        if len({int(size[1]) for size in sizes}) > 1:
            # All processes have detected the mismatch, so that all of them exchange their
            # descriptions.
            text = np.frombuffer(
                what[:MAX_DESCRIPTION_CHARACTERS].encode().ljust(4 * MAX_DESCRIPTION_CHARACTERS),
                np.uint8,
            )
            self._raise_disagreement(
                members, self._exchange_rows(members, ("what", number), text, {}, what)
            )
        lengths = {p: int(size[0]) for p, size in zip(members, sizes, strict=True)}
        mine = np.frombuffer(row, np.uint8)
        rows = self._exchange_rows(members, ("row", number), mine, lengths, what)
        return [each.tobytes() for each in rows]

    def _exchange_rows(
        self,
        members: tuple[int, ...],
        stage: tuple[object, ...],
        row: Array,
        lengths: Mapping[int, int],
        what: str,
    ) -> list[Array]:
        """Send a row to all other members and receive theirs, of the same length unless `lengths`
        has another."""
        place = ExecutionPoint(what, self._beginning)
        others = [process for process in members if process != self.index]
        places = {p: np.empty(lengths.get(p, len(row)), row.dtype) for p in others}
        tag = self.messages.tag("gather", members, *stage)
        self.messages.wait(
            self.messages.post(tag, dict.fromkeys(others, row), places, lambda: place)
        )
        return [row if process == self.index else places[process] for process in members]

    def _raise_disagreement(self, members: tuple[int, ...], texts: Sequence[Array]) -> NoReturn:
        words = [text.tobytes().decode().strip() for text in texts]
        odd = next(i for i, each in enumerate(words) if each != words[0])
        who = self.process_name
        raise DisagreementError(
            f"{who(members[0])} is at {words[0]}, and {who(members[odd])} is at {words[odd]}; "
            "all processes must run the same programs in the same order"
        )

    def start_send(self, row: Array, target: int, tag: int, what: str) -> PendingMessage:
        place = ExecutionPoint(what)
        posted = self._tagged.post(tag, {target: row}, {}, lambda: place)
        return PostedMessage(self._tagged, posted, NO_BYTES)

    def start_receive(self, size: int, source: int, tag: int, what: str) -> PendingMessage:
        place, row = ExecutionPoint(what), np.empty(size, np.uint8)
        posted = self._tagged.post(tag, {}, {source: row}, lambda: place)
        return PostedMessage(self._tagged, posted, row)

    def wait_for_any(self, messages: Sequence[PendingMessage]) -> None:
        self._tagged.wait_for_any([m.posted for m in messages if isinstance(m, PostedMessage)])

    def exchange(
        self, rows: Mapping[int, Array], sizes: Mapping[int, int], what: str
    ) -> dict[int, Array]:
        place = ExecutionPoint(what)
        came = {process: np.empty(size, np.uint8) for process, size in sizes.items()}
        posted = []
        for process in sorted({*rows, *sizes}):
            send = {process: rows[process]} if process in rows else {}
            receive = {process: came[process]} if process in sizes else {}
            # Sent and received messages are counted separately: the counts of both processes agree.
            if send:
                tag = self.messages.tag(what, self.count("sent", process))
                posted.append(self.messages.post(tag, send, {}, lambda: place))
            if receive:
                tag = self.messages.tag(what, self.count("received", process))
                posted.append(self.messages.post(tag, {}, receive, lambda: place))
        for each in posted:
            self.messages.wait(each)
        return came

    def _beat(self) -> None:
        """Send the status to the processes that have ended; end the job if a process or the
        launcher is lost."""
        self._check_launcher()
        self.messages.deadlock_detector.send_heartbeat()
        self.messages.check_connections()

    def wait_for_end(self) -> None:
        """Announce the end of this process, and wait until all others have ended, with sleeps.

        If another process ends the job before, because it waits for this one, the exit code of this
        process is the cause. A launcher that started all processes receives both exit codes.
        """
        if os.getpid() != self._process:
            return  # A forked child.
        if self._heartbeat is not None:
            self._heartbeat.stop()
        detector, seconds = self.messages.deadlock_detector, self.messages.seconds
        if self._launcher is not None and len(set(self.messages.hosts)) == 1:
            self.comm.leave_job()
        detector.announce_end()
        while not detector.has_all_ended():
            if self.comm.has_been_aborted():
                return
            self.comm.pause(END_POLL_SECONDS)
            self.messages.check_connections()
            if silent := detector.silent_processes(seconds):
                names = ", ".join(map(self.process_name, silent))
                self.messages.fail(
                    f"{self.process_name(self.index)}: the end of the program timed out after "
                    f"{seconds:g} "
                    f"s, in which no message arrived from {names}; if it needs longer, set "
                    "SHARDIR_COMM_TIMEOUT to more seconds"
                )
            self._check_launcher()

    def _check_launcher(self) -> None:
        """End the job if the launcher has ended: it cannot stop this process if another fails."""
        if self._launcher not in (None, os.getppid()):
            end_job(
                self.comm,
                f"shardir: {self.process_name(self.index)} has lost its launcher",
                LOST_PROCESS_EXIT_CODE,
            )


def _processes_sharing_cores(comm: Communicator, hosts: Sequence[str]) -> int:
    """Return the number of processes on this host, including this one, that may run on the same
    cores."""
    mine = hosts[comm.rank]
    cores = comm.allgather(_affinity())
    here = cores[comm.rank]
    return sum(
        host == mine
        and not (isinstance(here, set) and isinstance(other, set) and here.isdisjoint(other))
        for host, other in zip(hosts, cores, strict=True)
    )


def _affinity() -> set[int] | None:
    """Return the cores that this process may run on, None if the system does not report them."""
    return os.sched_getaffinity(0) if sys.platform == "linux" else None


def _available_cores() -> int:
    """Return the number of cores that this process may run on."""
    cores = _affinity()
    return len(cores) if cores is not None else os.cpu_count() or 1
