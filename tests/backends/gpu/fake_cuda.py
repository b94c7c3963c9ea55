"""What torch.cuda offers, without a GPU: streams write down what they are told, no more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest


class Event:
    """A place in what a stream has been told."""

    def __init__(self, stream: "Stream") -> None:
        self.stream, self.place = stream, len(stream.told)


class Stream:
    """`told` are the events it waits for, and the words of those who compute."""

    def __init__(self, device: object = None) -> None:
        self.told: list[Any] = []

    def record_event(self) -> Event:
        return Event(self)

    def wait_event(self, event: Event) -> None:
        self.told.append(event)

    def wait_stream(self, other: "Stream") -> None:
        self.told.append(Event(other))


class Graph:
    """Counts how often it is replayed."""

    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


def pretend(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Let torch.cuda be this; returns the stream of whoever enters no other."""
    first, local = Stream(), threading.local()

    def current(device: object = None) -> Stream:
        found: Stream = getattr(local, "stream", first)
        return found

    @contextmanager
    def entered(stream: Stream) -> Iterator[None]:
        before = current()
        local.stream = stream
        try:
            yield
        finally:
            local.stream = before

    @contextmanager
    def on(device: str) -> Iterator[None]:
        before = getattr(local, "device", "cuda:0")
        local.device = device
        try:
            yield
        finally:
            local.device = before

    for name, fake in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "current_stream": current,
        "stream": entered,
        "current_device": lambda: getattr(local, "device", "cuda:0"),
        "device": lambda device: on(str(device)),
        "graph": lambda graph, capture_error_mode: nullcontext(),
    }.items():
        monkeypatch.setattr(f"torch.cuda.{name}", fake)
    return first
