"""A replacement for torch.cuda without a GPU: streams only record their calls."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest


class Event:
    """A position in the record of a stream."""

    def __init__(self, stream: "Stream") -> None:
        self.stream, self.place = stream, len(stream.record)


class Stream:
    """A stream; `record` lists the events that it waits for and the marks of computations."""

    def __init__(self, device: object = None) -> None:
        self.record: list[Any] = []

    def record_event(self) -> Event:
        return Event(self)

    def wait_event(self, event: Event) -> None:
        self.record.append(event)

    def wait_stream(self, other: "Stream") -> None:
        self.record.append(Event(other))


class Graph:
    """A CUDA graph that counts its replays."""

    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


def replace_torch_cuda(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Replace torch.cuda by the classes of this module, and return the default stream."""
    default_stream, local = Stream(), threading.local()

    def current(device: object = None) -> Stream:
        current_stream: Stream = getattr(local, "stream", default_stream)
        return current_stream

    @contextmanager
    def use_stream(stream: Stream) -> Iterator[None]:
        previous = current()
        local.stream = stream
        try:
            yield
        finally:
            local.stream = previous

    @contextmanager
    def use_device(device: str) -> Iterator[None]:
        previous = getattr(local, "device", "cuda:0")
        local.device = device
        try:
            yield
        finally:
            local.device = previous

    for name, fake in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "current_stream": current,
        "stream": use_stream,
        "current_device": lambda: getattr(local, "device", "cuda:0"),
        "device": lambda device: use_device(str(device)),
        "graph": lambda graph, capture_error_mode: nullcontext(),
    }.items():
        monkeypatch.setattr(f"torch.cuda.{name}", fake)
    return default_stream
