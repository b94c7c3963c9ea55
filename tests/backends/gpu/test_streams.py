"""CUDA streams of devices that share a GPU as threads: events that the streams wait for."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from shardir.backends.gpu.vendored import threads
from shardir.backends.gpu.vendored.comm import Comm
from shardir.backends.gpu.vendored.device_mesh import Mesh
from shardir.backends.gpu.vendored.threads import run_threads
from tests.backends.gpu.fake_cuda import Event, Stream, replace_torch_cuda

GPU = "cuda:0"


class ScalarTensor:
    """A scalar tensor on a GPU, with only the members that collectives use."""

    dtype, shape = "f32", ()

    def __init__(self, number: int) -> None:
        self.number = number

    def to(self, device: Any, non_blocking: bool) -> "ScalarTensor":
        assert (str(device), non_blocking) == (GPU, True)
        return self


@pytest.fixture
def default_stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setattr(threads, "_STREAMS", {})
    return replace_torch_cuda(monkeypatch)


def sum_of_ranks(comm: Comm) -> Any:
    """Return the sum of the ranks, and the stream that computed it."""
    stream: Any = torch.cuda.current_stream(comm.device)

    def use(parts: Sequence[Any]) -> Any:
        stream.record.append("use")
        return sum(part.number for part in parts)

    return comm.meet(ScalarTensor(comm.rank), (0, 1, 2), "adding", use), stream


def test_streams_wait_for_producers_and_for_readers(default_stream: Stream) -> None:
    results = run_threads(Mesh({"i": 3}), [GPU] * 3, sum_of_ranks)

    assert [total for total, _ in results] == [3, 3, 3]
    streams = [stream for _, stream in results]
    assert len(set(map(id, (default_stream, *streams)))) == 4
    for stream in streams:
        at = stream.record.index("use")
        before, after = stream.record[:at], stream.record[at + 1 :]
        # A stream first waits for the work of the caller and of the other devices. After its use it
        # waits for the other devices to finish reading.
        assert [event.stream for event in before] == [default_stream] * 3 + streams
        assert [event.stream for event in after] == streams
        for event in after:
            assert "use" in event.stream.record[: event.place]
    last = [event for event in default_stream.record if isinstance(event, Event)]
    assert [event.stream for event in last] == streams
    for event in last:
        assert event.place == len(event.stream.record)


def test_runs_reuse_their_streams(default_stream: Stream) -> None:
    first, second = (
        [stream for _, stream in run_threads(Mesh({"i": 3}), [GPU] * 3, sum_of_ranks)]
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("count", [1, 2])
def test_each_device_sets_its_gpu_as_the_current_one(default_stream: Stream, count: int) -> None:
    """Triton launches kernels on the current device, whichever device stores the tensors."""
    mesh, device_names = Mesh({"i": count}), [f"cuda:{3 + rank}" for rank in range(count)]
    assert run_threads(mesh, device_names, lambda comm: torch.cuda.current_device()) == device_names
    assert torch.cuda.current_device() == GPU


def test_one_device_uses_the_stream_of_the_caller(default_stream: Stream) -> None:
    (stream,) = run_threads(Mesh({}), [GPU], lambda comm: torch.cuda.current_stream(comm.device))
    assert stream is default_stream
