"""The process group of an MPI job, and the communication of this process with the others."""

import atexit
import os
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NoReturn
from zlib import crc32

import numpy as np
from mpi4py import MPI

from shardir.backends.base import Array, Executable, Lower, ProcessLink
from shardir.backends.cpu.threads.workers import share_cores
from shardir.backends.mpi.deadlock_detector import ExecutionPoint
from shardir.backends.mpi.heartbeat import Heartbeat
from shardir.backends.mpi.interpreted_program import InterpretedProgram
from shardir.backends.mpi.messages import MessageChannel, end_job
from shardir.backends.mpi.process_blocks import process_blocks_of
from shardir.backends.mpi.program_agreement import (
    DisagreementError,
    ProgramIdentity,
    check_agreement,
)
from shardir.errors import MergeError
from shardir.interpret.interpreter import spmd_mesh_of
from shardir.ir.module import Module

END_POLL_SECONDS = 1e-3
LOST_LAUNCHER_EXIT_CODE = 13
"""The exit code of a process whose launcher has ended."""
MAX_DESCRIPTION_CHARACTERS = 200
"""Maximum characters of the description of an operation that is sent to other processes."""


class World(ProcessLink):
    """The link to all processes of the job; compiles programs that run on several processes."""

    def __init__(self, comm: MPI.Intracomm, seconds: float) -> None:
        self.comm = comm
        hosts: list[str] = comm.allgather(socket.gethostname())
        sharing = _processes_sharing_cores(comm, hosts)
        polite = sharing > _available_cores()
        share_cores(sharing)
        self.messages = MessageChannel(comm, hosts, seconds, polite)
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._known: set[str] = set()
        self._beginning: ProgramIdentity | None = None
        self._process, self._parent = os.getpid(), os.getppid()
        # Several threads may send at the same time only with MPI_THREAD_MULTIPLE.
        threads = self.size > 1 and MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._pulse = Heartbeat(self.messages.notes.send_heartbeat, seconds) if threads else None

    @property
    def index(self) -> int:
        """The rank of this process."""
        return self.comm.Get_rank()

    @property
    def size(self) -> int:
        """The number of processes."""
        return self.comm.Get_size()

    def process_name(self, process: int) -> str:
        return self.messages.process_name(process)

    def compile(
        self,
        module: Module,
        owners: Sequence[int],
        lower: Lower | None = None,
        *,
        checks_inputs: bool = True,
    ) -> Executable:
        if lower is not None and module.main.spmd and self.index in owners:
            blocks = process_blocks_of(spmd_mesh_of(module), owners, self.index)
            if blocks is not None:
                from shardir.backends.mpi.compiled_program import CompiledProgram

                with suppress(MergeError):
                    return CompiledProgram(
                        module, lower, owners, blocks, self, checks_inputs=checks_inputs
                    )
        return InterpretedProgram(module, owners, self, checks_inputs=checks_inputs)

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

    def wait_for_end(self) -> None:
        """Announce the end of this process, and wait until all others have ended, with sleeps."""
        if os.getpid() != self._process:
            return  # A forked child.
        if self._pulse is not None:
            self._pulse.stop()
        notes, seconds = self.messages.notes, self.messages.seconds
        notes.announce_end()
        while not notes.has_all_ended():
            time.sleep(END_POLL_SECONDS)
            if silent := notes.silent_processes(seconds):
                names = ", ".join(map(self.process_name, silent))
                self.messages.fail(
                    f"{self.process_name(self.index)}: the end of the program timed out after "
                    f"{seconds:g} "
                    f"s, in which no message arrived from {names}; if it needs longer, set "
                    "SHARDIR_COMM_TIMEOUT to more seconds"
                )
            if os.getppid() != self._parent:
                # The launcher has ended and could not stop this process if other processes failed.
                end_job(
                    self.comm,
                    f"shardir: {self.process_name(self.index)} has lost its launcher",
                    LOST_LAUNCHER_EXIT_CODE,
                )


def _processes_sharing_cores(comm: MPI.Intracomm, hosts: Sequence[str]) -> int:
    """Return the number of processes on this host, including this one, that may run on the same
    cores."""
    mine = hosts[comm.Get_rank()]
    cores: list[set[int] | None] = comm.allgather(_affinity())
    here = cores[comm.Get_rank()]
    return sum(
        host == mine and (here is None or other is None or bool(here & other))
        for host, other in zip(hosts, cores, strict=True)
    )


def _affinity() -> set[int] | None:
    """Return the cores that this process may run on, None if the system does not report them."""
    return os.sched_getaffinity(0) if sys.platform == "linux" else None


def _available_cores() -> int:
    """Return the number of cores that this process may run on."""
    cores = _affinity()
    return len(cores) if cores is not None else os.cpu_count() or 1


def connect(seconds: float) -> World:
    """Return the world of the processes that were started together with this one.

    Afterwards an uncaught exception in any thread ends all of them.
    """
    world = World(MPI.COMM_WORLD.Dup(), seconds)
    if world.size > 1:
        _end_all_on_exceptions(world)
        atexit.register(world.wait_for_end)
    return world


def _end_all_on_exceptions(world: World) -> None:
    before, before_in_threads = sys.excepthook, threading.excepthook
    where = world.process_name(world.index)

    def stop(name: str) -> None:
        end_job(world.comm, f"shardir: {where} ends the job, because of the {name} above", 1)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            before(kind, error, trace)
        except Exception:
            with suppress(Exception):
                traceback.print_exception(kind, error, trace)
        stop(kind.__name__)

    def hook_in_threads(args: threading.ExceptHookArgs) -> None:
        with suppress(Exception):
            before_in_threads(args)
        if args.exc_type is not SystemExit:
            stop(args.exc_type.__name__)

    sys.excepthook, threading.excepthook = hook, hook_in_threads
