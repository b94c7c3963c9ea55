"""Which process of a run this is, by the environment that its launcher made.

torchrun, Open MPI's and MPICH's mpiexec (and Intel's), and srun are known. All processes must find
the first one: on one host they do, under torchrun and srun as well; elsewhere MASTER_ADDR names its
host.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shardir.backends.gpu.vendored.comm import CommError

PORT = 29500


@dataclass(frozen=True)
class Launch:
    """A process of a run; `by` is the launcher."""

    rank: int
    size: int
    local_rank: int
    host: str
    port: int
    by: str


@dataclass(frozen=True)
class _Words:
    """What a launcher calls its variables; `count` is how many processes are on this host."""

    by: str
    rank: str
    size: str
    local: str
    count: str = ""


_KNOWN = (
    _Words("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    _Words(
        "mpiexec",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    # Inside of a job of Slurm's, processes of MPICH's mpiexec see Slurm's variables as well, which
    # are those of the one process that started them; and those of srun see PMI_RANK alone.
    _Words("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Words("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


def launched(environment: Mapping[str, str]) -> Launch | None:
    """What the environment says; `None` for a process that was started alone.

    Raises `CommError` where it does not say how to find the first process.
    """
    for words in _KNOWN:
        needed = [words.rank, words.size]
        if words.by != "torchrun":  # what else sets its variables may leave this one out
            needed.append(words.local)
        if all(name in environment for name in needed):
            rank, size = int(environment[words.rank]), int(environment[words.size])
            local = int(environment.get(words.local, 0))
            port = int(environment.get("MASTER_PORT", PORT + _job(environment)))
            host = _host(environment, words, size)
            return Launch(rank, size, local, host, port, words.by)
    return None


def _host(environment: Mapping[str, str], words: _Words, size: int) -> str:
    """The host of the first process."""
    if environment.get("MASTER_ADDR"):
        return environment["MASTER_ADDR"]
    nodes = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST"))
    if words.by == "srun" and nodes:
        return first_node(nodes)
    if size == 1 or environment.get(words.count) == str(size):
        return "127.0.0.1"
    raise CommError(
        f"{words.by} started {size} processes, and nothing says where the first one is; set "
        "MASTER_ADDR to the name of its host for all of them"
    )


def _job(environment: Mapping[str, str]) -> int:
    """Jobs that share a host need different ports."""
    job = environment.get("SLURM_JOB_ID", "0")
    return int(job) % 1000 if job.isdecimal() else 0


def first_node(nodes: str) -> str:
    """The first host of a list as Slurm writes it: `node[03-07,12],other` gives `node03`."""
    match = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\])?([^,]*)", nodes)
    if match is None:
        return nodes
    return match[1] + (match[2] or "") + match[3]
