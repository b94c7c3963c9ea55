"""`shardir launch`: start a program in several processes on this host, without MPI."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import randrange

from shardir.backends.distributed.communicator import (
    ABORTED_EXIT_CODE,
    LOST_PROCESS_EXIT_CODE,
)
from shardir.frontend.cli.options import CommandError
from shardir.frontend.distributed.launcher_environment import (
    COORDINATOR_VARIABLE,
    RANK_VARIABLE,
    SIZE_VARIABLE,
    TOKEN_VARIABLE,
)

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals of the terminal or a batch system that end the job."""
FIRST_PORT, LAST_PORT = 10240, 32768
"""The range of ports for process 0: below those that Linux gives to connections."""
MAX_PORT_ATTEMPTS = 100
POLL_SECONDS = 0.05
CAUSE_SECONDS = 10.0
"""Time in which the process that is the cause may end after one that could not continue without it.
Only stopped processes take so long, or computers with far more processes than cores."""
REPORT_SECONDS = 1.5
"""Time in which processes may report that they have lost another one, before they are ended."""
TERMINATION_SECONDS = 1.0
"""Time between SIGTERM and SIGKILL."""
TOKEN_BYTES = 16
SECONDARY_EXIT_CODES = (LOST_PROCESS_EXIT_CODE, ABORTED_EXIT_CODE)
"""The exit codes of processes that could not continue without another one."""
SIGNAL_EXIT_CODE = 128
"""A process that a signal has ended has this exit code plus the number of the signal, as in a
shell."""


def launch(
    command: Sequence[str],
    count: int,
    coordinator: str = "",
    first_rank: int = 0,
    size: int = 0,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a command in `count` processes, and return the exit code of the first that failed by
    itself.

    `coordinator` is the address of process 0, host:port, by default a free port of this host. Where
    several hosts run parts of one job, `size` is the number of all processes, and `first_rank` the
    lowest one here. The others are ended when a process fails or a signal ends the launcher, with
    the processes that they have started.
    """
    address = coordinator or f"127.0.0.1:{find_free_port()}"
    common = {
        **(os.environ if environment is None else environment),
        COORDINATOR_VARIABLE: address,
        SIZE_VARIABLE: str(size or count),
    }
    # Hosts of one job share no secret unless the user sets one.
    if not coordinator:
        common[TOKEN_VARIABLE] = secrets.token_hex(TOKEN_BYTES)
    ranks = range(first_rank, first_rank + count)
    processes: dict[int, subprocess.Popen[bytes]] = {}
    is_finished = False
    with _recorded_signals() as signals:
        try:
            for rank in ranks:
                # The descendants of a process share its session, so that they can be ended with it.
                processes[rank] = subprocess.Popen(
                    command, env={**common, RANK_VARIABLE: str(rank)}, start_new_session=True
                )
                _raise_signal(signals)
            failed = _wait_for_failure(processes, signals)
            is_finished = failed is None
            return 0 if failed is None else _report(failed, processes[failed].returncode)
        except OSError as error:
            raise CommandError(f"{command[0]} cannot be started: {error.strerror}") from error
        except _SignalError as error:
            _send_signal(processes, error.number)
            return SIGNAL_EXIT_CODE + error.number
        finally:
            if not is_finished:
                _end(processes)


class _SignalError(Exception):
    """A signal that ends the launcher."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextmanager
def _recorded_signals() -> Iterator[list[int]]:
    """Yield the list of the signals that end the launcher, to which each one that arrives is added.

    An exception of a signal handler could leave a process behind that has just been started, and
    whose number the launcher does not have yet. Ignored signals, such as SIGHUP under `nohup`,
    remain ignored.
    """
    signals: list[int] = []
    before = {
        each: signal.signal(each, lambda number, frame: signals.append(number))
        for each in END_SIGNALS
        if signal.getsignal(each) != signal.SIG_IGN
    }
    try:
        yield signals
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _raise_signal(signals: Sequence[int]) -> None:
    """Raise an exception for the first signal that has arrived."""
    if signals:
        raise _SignalError(signals[0])


def find_free_port() -> int:
    """Return a TCP port of this host at which no process listens.

    It is not one that the system gives to connections, which could take it before process 0
    listens there.
    """
    for _ in range(MAX_PORT_ATTEMPTS):
        port = randrange(FIRST_PORT, LAST_PORT)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise CommandError(
        f"no TCP port from {FIRST_PORT} to {LAST_PORT - 1} can be used at 127.0.0.1; name one with "
        "--coordinator host:port"
    )


def _wait_for_failure(
    processes: Mapping[int, "subprocess.Popen[bytes]"], signals: Sequence[int]
) -> int | None:
    """Return the process whose failure ends the job; None when all have succeeded. Raise
    `_SignalError` if a signal arrives before.

    A process that could not continue without another one may be seen first: the other one ends as
    soon as its interpreter has finished.
    """
    deadline = float("inf")
    while True:
        _raise_signal(signals)
        codes = {rank: each.poll() for rank, each in processes.items()}
        failed = [rank for rank, code in codes.items() if code]
        causes = [rank for rank in failed if codes[rank] not in SECONDARY_EXIT_CODES]
        if causes:
            # A killed process is the cause of the errors of others.
            return min(causes, key=lambda rank: (processes[rank].returncode >= 0, rank))
        if failed:
            deadline = min(deadline, time.monotonic() + CAUSE_SECONDS)
        if None not in codes.values() or time.monotonic() >= deadline:
            # Processes without a message end because of one that has printed a message.
            return min(failed, key=lambda rank: codes[rank] == ABORTED_EXIT_CODE, default=None)
        time.sleep(POLL_SECONDS)


def _report(rank: int, code: int) -> int:
    """Print which process failed, and return its exit code as a shell does."""
    if code >= 0:
        how, code = f"ended with exit code {code}", code
    else:
        number = -code
        names = {each.value: each.name for each in signal.Signals}
        how = f"was ended by {names.get(number, f'signal {number}')}"
        code = SIGNAL_EXIT_CODE + number
    print(f"shardir launch: process {rank} {how}", file=sys.stderr, flush=True)
    return code


def _end(processes: Mapping[int, "subprocess.Popen[bytes]"]) -> None:
    """End the processes that still run: after a time for their reports, by SIGTERM, by SIGKILL."""
    for seconds, number in (
        (REPORT_SECONDS, signal.SIGTERM),
        (TERMINATION_SECONDS, signal.SIGKILL),
    ):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and _send_signal(processes, 0):
            time.sleep(POLL_SECONDS)
        _send_signal(processes, number)
    for each in processes.values():
        each.wait()


def _send_signal(processes: Mapping[int, "subprocess.Popen[bytes]"], number: int) -> bool:
    """Send a signal to the processes and their descendants; return whether one is running."""
    is_any_running = False
    for each in processes.values():
        each.poll()  # A process that has ended belongs to its group until then.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(each.pid, number)
            is_any_running = True
    return is_any_running
