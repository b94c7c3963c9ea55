"""Detection of a process launcher from environment variables."""

import os
from dataclasses import dataclass
from enum import Enum

from shardir.caller_warnings import warn_caller
from shardir.frontend.errors import DistributedError
from shardir.text.number_text import parse_natural_number

COORDINATOR_VARIABLE = "SHARDIR_COORDINATOR"
"""Environment variable in which `shardir launch` gives the address of process 0, host:port."""
TOKEN_VARIABLE = "SHARDIR_JOB_TOKEN"
"""Environment variable in which `shardir launch` gives a secret of the processes of a job."""
SIZE_VARIABLE = "SHARDIR_NUM_PROCESSES"
RANK_VARIABLE = "SHARDIR_PROCESS_ID"
TORCHRUN_VARIABLE = "TORCHELASTIC_RUN_ID"
"""Environment variable that only torchrun sets; others set WORLD_SIZE and RANK too."""


class Transport(Enum):
    """The means by which the processes of a launcher connect."""

    MPI = "MPI"
    SOCKETS = "sockets"
    TORCH_STORE = "sockets, whose addresses are in the key-value store of torchrun"


LAUNCHERS = (
    ("shardir launch", SIZE_VARIABLE, RANK_VARIABLE, COORDINATOR_VARIABLE, Transport.SOCKETS),
    ("torchrun", "WORLD_SIZE", "RANK", TORCHRUN_VARIABLE, Transport.TORCH_STORE),
    ("mpiexec", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", Transport.MPI),
    (
        "Open MPI's mpiexec", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE", Transport.MPI,
    ),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", Transport.MPI),
)  # fmt: skip
"""Launchers, their environment variables for the number of processes, the rank, and a variable that
identifies the launcher, and how their processes connect."""
COORDINATOR_ARGUMENTS = "distributed.initialize()"
"""The launcher name of processes that connect through the arguments of `initialize`."""
JOINED_VARIABLE = "SHARDIR_JOINED"
"""Environment variable with the process id of a process that has joined others.

A child process finds another id there, and therefore runs alone.
"""


@dataclass(frozen=True)
class LauncherInfo:
    """The launcher of this process, the number of processes it started, the rank of this one, and
    how they connect."""

    by: str
    size: int
    rank: int
    transport: Transport = Transport.MPI


def find_launcher() -> LauncherInfo | None:
    """Return the launcher that started this process with others, or `None` if it was started
    alone."""
    if os.environ.get(JOINED_VARIABLE, str(os.getpid())) != str(os.getpid()):
        return None
    for by, size, rank, mark, transport in LAUNCHERS:
        if {size, rank, mark} <= os.environ.keys():
            found = LauncherInfo(by, _read_number(size), _read_number(rank), transport)
            if found.rank >= found.size:
                raise DistributedError(
                    f"the environment variable {rank} is {found.rank}, and {size} is {found.size}; "
                    "a rank is less than the number of processes"
                )
            return found
    return None


def warn_if_launched_together() -> None:
    """Warn that this process runs alone although a launcher started several."""
    try:
        found = find_launcher()
    except DistributedError:
        return  # `initialize` raises the error.
    if found is not None and found.size > 1:
        warn_caller(
            f"{found.by} started {found.size} processes, and process {found.rank} runs alone: "
            "each process computes everything; to share the work, call "
            "shardir.distributed.initialize() before any array, mesh or device",
            RuntimeWarning,
        )


def _read_number(variable: str) -> int:
    text = os.environ[variable]
    number = parse_natural_number(text)
    if number is None:
        raise DistributedError(
            f"the environment variable {variable} is {text!r}, which is not an integer"
        )
    return number
