"""Process numbers and addresses are read from the environment variables of launchers."""

import pytest

from shardir.backends.gpu.vendored.comm import CommError
from shardir.backends.gpu.vendored.launchers import LaunchedProcess, first_node, read_launch

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "1234",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "9",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[04-05]",
    "SLURM_JOB_ID": "123456",
}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (TORCHRUN, LaunchedProcess(5, 8, 1, "node0", 1234, "torchrun")),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"},
            LaunchedProcess(1, 2, 0, "a", 29500, "torchrun"),
        ),
        (OPEN_MPI, LaunchedProcess(3, 4, 3, "127.0.0.1", 29500, "mpiexec")),
        (MPICH, LaunchedProcess(1, 2, 1, "127.0.0.1", 29500, "mpiexec")),
        (SLURM, LaunchedProcess(9, 16, 1, "gpu04", 29956, "srun")),
        (
            {**SLURM, "PMI_RANK": "9", "PMI_SIZE": "16"},
            LaunchedProcess(9, 16, 1, "gpu04", 29956, "srun"),
        ),
        ({**MPICH, **SLURM}, LaunchedProcess(1, 2, 1, "127.0.0.1", 29956, "mpiexec")),
        (
            {**SLURM, "MASTER_ADDR": "10.0.0.1"},
            LaunchedProcess(9, 16, 1, "10.0.0.1", 29956, "srun"),
        ),
        # The batch script of a Slurm job is not one of its processes.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_JOB_ID": "1"}, None),
    ],
    ids=[
        "no launcher",
        "torchrun",
        "by hand",
        "open mpi",
        "mpich",
        "srun",
        "pmi",
        "mpich in slurm",
        "master address given",
        "batch script",
    ],
)
def test_the_environment_of_each_launcher_is_read(
    environment: dict[str, str], expected: LaunchedProcess | None
) -> None:
    assert read_launch(environment) == expected


def test_several_hosts_require_the_address_of_the_first() -> None:
    with pytest.raises(CommError) as caught:
        read_launch({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
    assert str(caught.value) == (
        "mpiexec started 4 processes, and the host of process 0 is unknown; set MASTER_ADDR to "
        "its name for all processes"
    )


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node[03-07,12],other", "node03"),
        ("a,b", "a"),
        ("gpu-[2,4].example", "gpu-2.example"),
    ],
)
def test_the_first_host_of_a_slurm_node_list_is_found(nodes: str, first: str) -> None:
    assert first_node(nodes) == first
