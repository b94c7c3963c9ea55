"""Detection of a process launcher from environment variables, without MPI."""

import os
import warnings
from dataclasses import dataclass

from shardir.frontend.errors import DistributedError
from shardir.text.decimal_text import parse_natural_number

LAUNCHERS = (
    ("mpiexec", "PMI_SIZE", "PMI_RANK"),
    ("Open MPI's mpiexec", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
"""Launchers, and their environment variables for the number of processes and the rank."""
JOINED_VARIABLE = "SHARDIR_JOINED"
"""Environment variable with the process id of a process that has joined others.

A child process finds another id there, and therefore runs alone.
"""


@dataclass(frozen=True)
class LauncherInfo:
    """The launcher of this process, the number of processes it started, and the rank of this
    one."""

    by: str
    size: int
    rank: int


def find_launcher() -> LauncherInfo | None:
    """Return the launcher that started this process with others, or `None` if it was started
    alone."""
    if os.environ.get(JOINED_VARIABLE, str(os.getpid())) != str(os.getpid()):
        return None
    for by, size, rank in LAUNCHERS:
        if size in os.environ and rank in os.environ:
            return LauncherInfo(by, _read_number(size), _read_number(rank))
    return None


def warn_if_launched_together() -> None:
    """Warn that this process runs alone although a launcher started several."""
    try:
        found = find_launcher()
    except DistributedError:
        return  # `initialize` raises the error.
    if found is not None and found.size > 1:
        warnings.warn(
            f"{found.by} started {found.size} processes, and process {found.rank} runs alone: "
            "each process computes everything; to share the work, call "
            "shardir.distributed.initialize() before any array, mesh or device",
            RuntimeWarning,
            stacklevel=2,
        )


def _read_number(variable: str) -> int:
    text = os.environ[variable]
    number = parse_natural_number(text)
    if number is None:
        raise DistributedError(
            f"the environment variable {variable} is {text!r}, which is not an integer"
        )
    return number
