"""Initialization of processes, as far as one process can test it; tests/backends/distributed starts
several.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardir as sd
from shardir.distributed import (
    barrier,
    from_callback,
    from_process_local,
    gather_to_all,
    gather_to_root,
    initialize,
    is_initialized,
    process_count,
    process_index,
    shutdown,
)
from shardir.frontend.distributed.launcher_environment import LauncherInfo, find_launcher
from shardir.frontend.distributed.processes import ProcessGroup
from shardir.frontend.errors import ArgumentError, DeviceError, DistributedError, SettingError
from shardir.frontend.shardings.devices import local_devices
from shardir.sharding import NamedSharding, PartitionSpec as P

ROOT = Path(__file__).parents[3]
VARIABLES = ("PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")


@pytest.fixture(autouse=True)
def single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*VARIABLES, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SHARDIR_COMM_TIMEOUT"):
        monkeypatch.delenv(variable, raising=False)


def test_a_single_process_has_all_devices() -> None:
    initialize()
    initialize(num_processes=1, process_id=0)
    assert not is_initialized()
    assert (process_count(), process_index()) == (1, 0)
    assert sd.process_count() == 1
    assert sd.local_devices() == sd.devices()
    barrier("nobody else")


def test_collective_functions_of_a_single_process() -> None:
    whole = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    sharding = NamedSharding(sd.make_mesh((8,), ("x",)), P("x"))
    array = sd.device_put(whole, sharding)
    for found in (
        gather_to_all({"a": array})["a"],
        gather_to_root([array])[0],
        gather_to_all(whole),
        gather_to_all(from_process_local(whole, sharding)),
        gather_to_all(from_callback((8, 2), sharding, lambda index: whole[index])),
    ):
        np.testing.assert_array_equal(found, whole)


def test_num_cpu_devices_applies_to_a_single_process() -> None:
    with sd.config(num_cpu_devices=3, gather=False):
        initialize(local_device_count=5, gather=True)
        assert len(sd.devices()) == 5
        assert sd.config.gather


def test_devices_are_distributed_in_order() -> None:
    processes = ProcessGroup(1, (3, 3, 2))
    assert [processes.owner_of(id) for id in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [list(processes.device_ids(p)) for p in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert (processes.count, processes.device_count) == (3, 8)
    with pytest.raises(DeviceError, match="no process has index 1; this program has one, with"):
        local_devices(1)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        (
            {"num_processes": 4},
            "num_processes is 4, and nothing started this process together with others; start the "
            "program with shardir launch -n 4 program.py, or pass coordinator_address, "
            "num_processes and process_id together",
        ),
        (
            {"process_id": 1},
            "process_id is 1, and nothing started this process together with others; start the "
            "program with shardir launch -n 2 program.py, or pass coordinator_address, "
            "num_processes and process_id together",
        ),
        (
            {"coordinator_address": "10.0.0.1:1234", "num_processes": 2, "process_id": 2},
            "process_id is 2; it must be from 0 to 1",
        ),
        (
            {"coordinator_address": "10.0.0.1", "num_processes": 2, "process_id": 0},
            "coordinator_address is '10.0.0.1'; it must be a host and a port, such as "
            "'10.0.0.1:1234'",
        ),
        (
            {"coordinator_address": "10.0.0.1:1234"},
            "coordinator_address is '10.0.0.1:1234', and nothing started this process together "
            "with others; start the program with shardir launch -n 2 program.py, or pass "
            "num_processes and process_id too",
        ),
        (
            {"local_device_ids": [0, 1]},
            "local_device_ids is [0, 1], and the devices of a process cannot be chosen; pass "
            "local_device_count=2",
        ),
        ({"num_processes": "1"}, "num_processes is '1', and nothing started this process"),
        ({"local_device_count": "2"}, "local_device_count is '2'; it must be an integer"),
        (
            {"local_device_count": 0},
            "local_device_count is 0; every process has at least one device",
        ),
    ],
)
def test_invalid_arguments_are_errors(claims: dict[str, int], message: str) -> None:
    with pytest.raises(DistributedError) as caught:
        initialize(**claims)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_coordinator_arguments_of_jax_are_accepted() -> None:
    initialize("10.0.0.1:1234", 1, 0, cluster_detection_method="slurm", initialization_timeout=9)
    assert not is_initialized()
    shutdown()
    with pytest.raises(ArgumentError) as caught:
        initialize(num_proceses=1)
    assert str(caught.value).startswith(
        "distributed.initialize() takes no 'num_proceses'; did you mean 'num_processes'?"
    )


def error_of_initialize(**environment: str) -> str:
    """Return the last line of the standard error of a program that initializes in the
    environment.
    """
    done = subprocess.run(
        [sys.executable, "-c", "import shardir as sd; sd.distributed.initialize()"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    return next(line for line in done.stderr.splitlines() if "Error: " in line)


def test_child_processes_do_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "1")
    assert find_launcher() == LauncherInfo("mpiexec", 2, 1)
    monkeypatch.setenv("SHARDIR_JOINED", str(os.getpid()))
    assert find_launcher() == LauncherInfo("mpiexec", 2, 1)
    monkeypatch.setenv("SHARDIR_JOINED", str(os.getppid()))
    assert find_launcher() is None


@pytest.mark.needs("mpi4py")
def test_a_launcher_of_another_mpi_is_an_error() -> None:
    told = error_of_initialize(OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="2")
    assert (
        "Open MPI's mpiexec started 4 processes, and the MPI that mpi4py loads counts 1: they "
        "belong "
        "to different MPIs; start the program with the mpiexec of the MPI that mpi4py uses, such "
        "as "
    ) in told


def test_invalid_numbers_in_the_environment_are_errors() -> None:
    told = error_of_initialize(SLURM_STEP_NUM_TASKS="two", SLURM_PROCID="0")
    assert told.endswith(
        "the environment variable SLURM_STEP_NUM_TASKS is 'two', which is not an integer"
    )
    told = error_of_initialize(
        OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="2", SHARDIR_COMM_TIMEOUT="soon"
    )
    assert "SHARDIR_COMM_TIMEOUT is 'soon'; it must be a number of seconds" in told


def test_initialize_after_use_of_devices_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sd.devices()
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(DistributedError) as caught:
        initialize()
    assert str(caught.value).splitlines()[0] == (
        "distributed.initialize() is called too late: this program has created devices by an "
        "array, a mesh or devices(); call it first"
    )


def test_the_error_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setattr("shardir.frontend.distributed.initialize.has_devices", lambda: False)
    monkeypatch.setattr("shardir.frontend.distributed.connect.find_spec", lambda name: None)
    with pytest.raises(DistributedError) as caught:
        initialize()
    assert str(caught.value).startswith(
        "mpiexec started 2 processes, and mpi4py, which connects them, is not installed; pip "
        "install 'shardir[mpi]', or start the program with shardir launch, which needs no MPI"
    )


def test_an_mpi_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "MPI.py").write_text(
        "raise RuntimeError('cannot load MPI library\\nlibmpi.so: ...')", "utf-8"
    )
    told = error_of_initialize(
        PMI_SIZE="2", PMI_RANK="0", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}"
    )
    assert told.endswith(
        "mpiexec started 2 processes, and mpi4py cannot be loaded: cannot load MPI library; "
        "install an MPI for it, as pip install 'shardir[mpi]' does"
    )


def test_invalid_timeouts_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardir.frontend.distributed.initialize import timeout_seconds

    assert timeout_seconds(None) == 300
    assert timeout_seconds(2.5) == 2.5
    monkeypatch.setenv("SHARDIR_COMM_TIMEOUT", "20")
    assert timeout_seconds(None) == 20
    with pytest.raises(SettingError, match="a timeout of 0 seconds is invalid; it must be above 0"):
        timeout_seconds(0)
    with pytest.raises(SettingError, match="a timeout of '5' seconds is invalid"):
        initialize(timeout="5")  # type: ignore[arg-type]


def test_a_rank_beyond_the_number_of_processes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("COORDINATOR", "h:1"), ("NUM_PROCESSES", "2"), ("PROCESS_ID", "2")):
        monkeypatch.setenv(f"SHARDIR_{name}", value)
    with pytest.raises(DistributedError) as caught:
        find_launcher()
    assert str(caught.value) == (
        "the environment variable SHARDIR_PROCESS_ID is 2, and SHARDIR_NUM_PROCESSES is 2; a rank "
        "is less than the number of processes"
    )
