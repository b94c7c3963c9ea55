"""Rank, size and host of the first process, from the environment variables of a launcher.

torchrun, mpiexec of Open MPI, MPICH and Intel MPI, and srun are supported. All processes need the
host of the first one: on one host, and with torchrun or srun, they have it; otherwise MASTER_ADDR
must name it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shardir.backends.gpu.vendored.comm import CommError

DEFAULT_PORT = 29500


@dataclass(frozen=True)
class LaunchedProcess:
    """A process of a run; `by` is the launcher."""

    rank: int
    size: int
    local_rank: int
    host: str
    port: int
    by: str


@dataclass(frozen=True)
class _LauncherVariables:
    """Environment variables of a launcher; `count` names the number of processes on this host."""

    by: str
    rank: str
    size: str
    local: str
    count: str = ""


_LAUNCHERS = (
    _LauncherVariables("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    _LauncherVariables(
        "mpiexec",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    # Within a Slurm job, processes of MPICH's mpiexec also have Slurm's variables, with the values
    # of the process that started them; processes of srun have only PMI_RANK of the PMI variables.
    _LauncherVariables("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _LauncherVariables("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


def read_launch(environment: Mapping[str, str]) -> LaunchedProcess | None:
    """Return the process that the environment describes, or `None` if no launcher started it.

    Raises `CommError` if the environment does not determine the host of the first process.
    """
    for words in _LAUNCHERS:
        needed = [words.rank, words.size]
        if words.by != "torchrun":  # other programs set its variables without this one
            needed.append(words.local)
        if all(name in environment for name in needed):
            rank, size = int(environment[words.rank]), int(environment[words.size])
            local = int(environment.get(words.local, 0))
            port = int(environment.get("MASTER_PORT", DEFAULT_PORT + _job_port_offset(environment)))
            host = _first_host(environment, words, size)
            return LaunchedProcess(rank, size, local, host, port, words.by)
    return None


def _first_host(environment: Mapping[str, str], words: _LauncherVariables, size: int) -> str:
    """Return the host of the first process."""
    if environment.get("MASTER_ADDR"):
        return environment["MASTER_ADDR"]
    nodes = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST"))
    if words.by == "srun" and nodes:
        return first_node(nodes)
    if size == 1 or environment.get(words.count) == str(size):
        return "127.0.0.1"
    raise CommError(
        f"{words.by} started {size} processes, and the host of process 0 is unknown; set "
        "MASTER_ADDR to its name for all processes"
    )


def _job_port_offset(environment: Mapping[str, str]) -> int:
    """Return a port offset for the Slurm job: jobs that share a host need different ports."""
    job = environment.get("SLURM_JOB_ID", "0")
    return int(job) % 1000 if job.isdecimal() else 0


def first_node(nodes: str) -> str:
    """Return the first host of a Slurm node list: `node03` for `node[03-07,12],other`."""
    match = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\])?([^,]*)", nodes)
    if match is None:
        return nodes
    return match[1] + (match[2] or "") + match[3]
