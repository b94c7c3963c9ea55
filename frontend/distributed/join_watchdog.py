"""Watchdog process: it ends a process with a message if other processes of the job never join.

Until MPI has started, a process that waits for others cannot measure time, nor detect that one of
them has ended. A small separate process does so: it runs this file alone, and exits when the
watched process has joined or ended, which closes its input.

On one machine the child processes of the launcher give earlier evidence: a rank that was started
with this one and no longer runs will never join.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

POLL_INTERVAL_SECONDS = 0.5
"""Interval between checks of the other processes, in seconds."""
MISSING_GRACE_SECONDS = 3.0
"""Time in seconds for which a rank must be missing, because the launcher may still be starting
it."""
LAUNCHER_PROXY_NAME = "hydra_pmi_proxy"
"""The process that mpiexec of MPICH starts on every machine, whose children are the ranks there."""
TERMINATION_SECONDS = 2.0

FindMissing = Callable[[], Sequence[int]]


def parent_of(pid: int, root: Path) -> int:
    """Return the process id of the parent of a process; 0 if it is unknown."""
    try:
        # The name, in parentheses, may have any characters.
        return int((root / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def is_alive(pid: int, root: Path) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return (root / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()[
            0
        ] not in "ZX"
    except (OSError, IndexError):
        return False


def find_launcher_proxy(pid: int, root: Path) -> int:
    """Return the id of the launcher proxy among the ancestors of a process; 0 if there is none."""
    seen = set()
    while (pid := parent_of(pid, root)) > 1 and pid not in seen:
        seen.add(pid)
        try:
            if (root / str(pid) / "comm").read_text("utf-8").strip() == LAUNCHER_PROXY_NAME:
                return pid
        except OSError:
            break
    return 0


def live_ranks(proxy: int, root: Path) -> list[int]:
    """Return the live ranks that the launcher has started on this machine."""
    try:
        texts = [
            path.read_text("utf-8") for path in (root / str(proxy) / "task").glob("*/children")
        ]
        pids = [int(word) for text in texts for word in text.split()]
    except (OSError, ValueError):
        return []
    result = []
    for pid in pids:
        try:
            words = (root / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = next((word[9:] for word in words if word.startswith(b"PMI_RANK=")), b"")
        if rank.isdigit() and is_alive(pid, root):
            result.append(int(rank))
    return result


def find_missing_ranks(pid: int, count: int, size: int, root: Path) -> Sequence[int]:
    """Return the ranks on this machine that have ended, as far as they can be determined.

    `count` of all `size` processes were started here. If others run elsewhere, the ranks are
    unknown, and the result has as many entries -1.
    """
    proxy = find_launcher_proxy(pid, root)
    ranks = live_ranks(proxy, root) if proxy else []
    if not ranks or len(ranks) >= count:
        return ()
    if count == size:
        return sorted({*range(size)} - {*ranks})
    return [-1] * (count - len(ranks))


def wait_for_join(seconds: float, look: FindMissing, wait: Callable[[float], bool]) -> str:
    """Return the reason why waiting is futile, or an empty text once `wait` returns true."""
    end, gone, since = time.monotonic() + seconds, tuple[int, ...](), 0.0
    while True:
        now = time.monotonic()
        if now >= end:
            return (
                f"distributed.initialize() timed out after {seconds:g} s, waiting for the other "
                "processes; every process of the job must call it; if they need longer until then, "
                "set SHARDIR_COMM_TIMEOUT to more seconds"
            )
        if wait(min(POLL_INTERVAL_SECONDS, end - now)):
            return ""
        found = tuple(look())
        if found != gone:
            gone, since = found, time.monotonic()
        if gone and time.monotonic() - since > MISSING_GRACE_SECONDS:
            return f"distributed.initialize() would wait forever: {describe_missing(gone)}"


def describe_missing(gone: Sequence[int]) -> str:
    """Return a description of the ranks that have ended."""
    rule = "every process of the job must call it"
    if gone[0] < 0:
        who = "another process" if len(gone) == 1 else f"{len(gone)} other processes"
        return f"{who} of this host ended before calling it; {rule}"
    names = ", ".join(map(str, gone[:8])) + (", ..." if len(gone) > 8 else "")
    word = "process" if len(gone) == 1 else "processes"
    return f"{word} {names} ended before calling it; {rule}"


def has_watched_ended(seconds: float) -> bool:
    """Return whether the watched process has joined or ended."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready)


def main(words: Sequence[str]) -> None:
    pid, rank, size, count, seconds = *map(int, words[:4]), float(words[4])
    root = Path("/proc")
    why = wait_for_join(
        seconds, lambda: find_missing_ranks(pid, count, size, root), has_watched_ended
    )
    if not why:
        return
    print(f"shardir: process {rank} ({socket.gethostname()}): {why}", file=sys.stderr, flush=True)
    for number in (signal.SIGALRM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if has_watched_ended(TERMINATION_SECONDS):
            return


if __name__ == "__main__":
    main(sys.argv[1:])
