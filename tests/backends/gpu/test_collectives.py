"""Collectives between threads and between processes give the results of the reference."""

import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch

from shardir.backends.gpu.vendored import distributed
from shardir.backends.gpu.vendored.arrays import to_torch
from shardir.backends.gpu.vendored.comm import Comm, CommError
from shardir.backends.gpu.vendored.device_mesh import Mesh
from shardir.backends.gpu.vendored.threads import run_threads
from tests.backends.gpu.collective_cases import CASES, MESH, Case, check, operand_of
from tests.backends.gpu.device import DEVICE

pytestmark = pytest.mark.sample(3)

DEVICES = [DEVICE] * MESH.size


@pytest.mark.parametrize("case", CASES, ids=str)
def test_collectives_between_threads_give_the_reference_results(case: Case) -> None:
    def work(comm: Comm) -> Any:
        return case.call(comm, to_torch(operand_of(case, comm.rank), case.dtype).to(DEVICE))

    check(case, run_threads(Mesh(dict(MESH.axes)), DEVICES, work))


def test_operands_may_be_overwritten_after_a_collective() -> None:
    def work(comm: Comm) -> Any:
        x = torch.full((1000,), float(comm.rank))
        results = []
        for _ in range(20):
            results.append(comm.all_gather(x, dim=0, axes=("a", "b")))
            results.append(comm.collective_permute(x, axes=("a",), pairs=((0, 1), (1, 0))))
            x += 4
        return [each[0].item() for each in results], [each[-1].item() for each in results[::2]]

    for rank, (first, last) in enumerate(run_threads(Mesh(dict(MESH.axes)), DEVICES, work)):
        assert first[::2] == [4.0 * i for i in range(20)]
        assert last == [4.0 * i + 3 for i in range(20)]
        assert first[1::2] == [4.0 * i + (rank ^ 2) for i in range(20)]


def test_an_error_of_one_device_stops_the_other_devices() -> None:
    def work(comm: Comm) -> Any:
        if comm.rank == 2:
            raise ZeroDivisionError("of device 2")
        return comm.all_reduce(torch.ones(3), "add", axes=("a", "b"))

    with pytest.raises(ZeroDivisionError, match="of device 2"):
        run_threads(Mesh(dict(MESH.axes)), DEVICES, work)


def test_different_collectives_of_devices_are_an_error() -> None:
    def work(comm: Comm) -> Any:
        return comm.all_reduce(torch.ones(3 + comm.rank % 2), "add", axes=("b",))

    with pytest.raises(CommError) as caught:
        run_threads(Mesh(dict(MESH.axes)), DEVICES, work)
    assert "all_reduce add of torch.float32[3]" in str(caught.value)
    assert str(caught.value).endswith("all devices of a group must call the same collectives")


def test_waiting_for_a_missing_device_times_out() -> None:
    def work(comm: Comm) -> Any:
        return None if comm.rank else comm.all_reduce(torch.ones(3), "add", axes=("b",))

    with pytest.raises(CommError) as caught:
        run_threads(Mesh(dict(MESH.axes)), DEVICES, work, timeout=0.2)
    assert str(caught.value) == "device 0 waited 0.2 s for the others at all_reduce add"


def test_threads_run_one_at_a_time_under_the_triton_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    working = []

    def work(comm: Comm) -> Any:
        for _ in range(5):
            working.append(comm.rank)
            time.sleep(0.001)
            assert working.pop() == comm.rank
            comm.all_reduce(torch.ones(3), "add", axes=("a", "b"))
        return True

    assert all(run_threads(Mesh(dict(MESH.axes)), DEVICES, work))


def test_one_device_runs_on_the_calling_thread() -> None:
    (thread,) = run_threads(Mesh({}), ["cpu"], lambda comm: threading.current_thread())
    assert thread is threading.current_thread()


def test_collectives_between_processes_give_the_reference_results() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.backends.gpu.forked_ranks"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == f"{len(CASES)} collective cases\n", done.stderr


def test_a_single_element_of_any_stride_is_viewed_as_bytes() -> None:
    x = torch.arange(4.0)[2:4:2]
    assert x.is_contiguous()
    assert x.stride() == (2,)
    assert distributed._view_as_bytes(x).tolist() == [0, 0, 0, 64]
