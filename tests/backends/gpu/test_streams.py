"""Devices that share a GPU as threads: what their streams wait for, and in which order."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from shardir.backends.gpu.vendored import threads
from shardir.backends.gpu.vendored.comm import Comm
from shardir.backends.gpu.vendored.device_mesh import Mesh
from shardir.backends.gpu.vendored.threads import run_threads
from tests.backends.gpu.fake_cuda import Event, Stream, pretend

GPU = "cuda:0"


class Number:
    """A tensor of one number on a GPU, as far as meeting goes."""

    dtype, shape = "f32", ()

    def __init__(self, number: int) -> None:
        self.number = number

    def to(self, device: Any, non_blocking: bool) -> "Number":
        assert (str(device), non_blocking) == (GPU, True)
        return self


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setattr(threads, "_STREAMS", {})
    return pretend(monkeypatch)


def added(comm: Comm) -> Any:
    """The sum of the ranks, and the stream it was computed on."""
    stream: Any = torch.cuda.current_stream(comm.device)

    def use(parts: Sequence[Any]) -> Any:
        stream.told.append("use")
        return sum(part.number for part in parts)

    return comm.meet(Number(comm.rank), (0, 1, 2), "adding", use), stream


def test_streams_wait_for_what_they_read_and_for_who_reads(caller: Stream) -> None:
    made = run_threads(Mesh({"i": 3}), [GPU] * 3, added)

    assert [total for total, _ in made] == [3, 3, 3]
    streams = [stream for _, stream in made]
    assert len(set(map(id, (caller, *streams)))) == 4
    for stream in streams:
        at = stream.told.index("use")
        before, after = stream.told[:at], stream.told[at + 1 :]
        # The caller's work, then what the others show; and what they have read before going on.
        assert [event.stream for event in before] == [caller] * 3 + streams
        assert [event.stream for event in after] == streams
        for event in after:
            assert "use" in event.stream.told[: event.place]
    last = [event for event in caller.told if isinstance(event, Event)]
    assert [event.stream for event in last] == streams
    for event in last:
        assert event.place == len(event.stream.told)


def test_streams_are_the_same_from_run_to_run(caller: Stream) -> None:
    first, second = (
        [stream for _, stream in run_threads(Mesh({"i": 3}), [GPU] * 3, added)] for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("count", [1, 2])
def test_devices_work_with_their_own_gpu_as_torchs(caller: Stream, count: int) -> None:
    """Triton launches kernels on that one, wherever their tensors are."""
    mesh, places = Mesh({"i": count}), [f"cuda:{3 + rank}" for rank in range(count)]
    assert run_threads(mesh, places, lambda comm: torch.cuda.current_device()) == places
    assert torch.cuda.current_device() == GPU


def test_one_device_works_on_the_stream_of_the_caller(caller: Stream) -> None:
    (stream,) = run_threads(Mesh({}), [GPU], lambda comm: torch.cuda.current_stream(comm.device))
    assert stream is caller
