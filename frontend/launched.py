"""Detection of a process launcher from environment variables, without MPI."""

import os
import warnings
from dataclasses import dataclass

from shardir.decimal_text import whole_number
from shardir.frontend.errors import DistributedError

LAUNCHERS = (
    ("mpiexec", "PMI_SIZE", "PMI_RANK"),
    ("Open MPI's mpiexec", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
"""Launchers, and their environment variables for the number of processes and the rank."""
JOINED = "SHARDIR_JOINED"
"""Environment variable with the process id of a process that has joined others.

A child process finds another id there, and therefore runs alone.
"""


@dataclass(frozen=True)
class Launch:
    """The launcher of this process, the number of processes it started, and the rank of this
    one."""

    by: str
    size: int
    rank: int


def launch() -> Launch | None:
    """Return the launcher that started this process with others, or `None` if it was started
    alone."""
    if os.environ.get(JOINED, str(os.getpid())) != str(os.getpid()):
        return None
    for by, size, rank in LAUNCHERS:
        if size in os.environ and rank in os.environ:
            return Launch(by, _number(size), _number(rank))
    return None


def warn_of_others() -> None:
    """Warn that this process runs alone although a launcher started several."""
    try:
        found = launch()
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


def _number(variable: str) -> int:
    text = os.environ[variable]
    number = whole_number(text)
    if number is None:
        raise DistributedError(
            f"the environment variable {variable} is {text!r}, which is no integer"
        )
    return number
