"""Who started this process, and with how many others: read from the environment, without MPI."""

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
"""A launcher, and where it says how many processes there are and which this one is."""
JOINED = "SHARDIR_JOINED"
"""Where a process that has joined others says so to those that it starts: they are alone."""


@dataclass(frozen=True)
class Launch:
    """What a launcher says: how many processes it started, and which this one is."""

    by: str
    size: int
    rank: int


def launch() -> Launch | None:
    """Who started this process together with others; `None` if it was started alone."""
    if os.environ.get(JOINED, str(os.getpid())) != str(os.getpid()):
        return None
    for by, size, rank in LAUNCHERS:
        if size in os.environ and rank in os.environ:
            return Launch(by, _number(size), _number(rank))
    return None


def warn_of_others() -> None:
    """Say that this process goes on without those that were started together with it."""
    try:
        found = launch()
    except DistributedError:
        return  # `initialize` tells
    if found is not None and found.size > 1:
        warnings.warn(
            f"{found.by} started {found.size} processes, and process {found.rank} goes on alone: "
            "each computes everything by itself; to share the work, call "
            "shardir.distributed.initialize() before any array, mesh or device",
            RuntimeWarning,
            stacklevel=2,
        )


def _number(variable: str) -> int:
    text = os.environ[variable]
    number = whole_number(text)
    if number is None:
        raise DistributedError(f"the environment variable {variable} is {text!r}, no whole number")
    return number
