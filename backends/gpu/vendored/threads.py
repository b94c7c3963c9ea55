"""Several devices of a mesh in one process: one thread per device.

Devices may share a GPU, each with its own stream, use several GPUs, or run on the CPU. In a
collective, the threads of a group publish their tensors, wait at a barrier, read the tensors
directly, and wait again until all have read them. On GPUs the threads do not wait for computations:
events order the streams.

Triton compiles and interprets with global state. In both cases one thread at a time runs, until it
waits at a barrier; work on GPUs still overlaps.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

from shardir.backends.gpu.vendored.comm import Comm, CommError, Transfers
from shardir.backends.gpu.vendored.device_mesh import Mesh

Made = TypeVar("Made")
Message = tuple[Tensor, torch.cuda.Event | None]
"""A sent tensor, and the event after which it is complete."""
MessageKey = tuple[int, int, int]
"""The devices that send and receive a message, and its number among those of both."""


class Rendezvous:
    """Rendezvous of a group: a barrier, published tensors, and events after reading."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        self.published: dict[int, tuple[Tensor, str, torch.cuda.Event | None]] = {}
        self.read_events: dict[int, torch.cuda.Event | None] = {}


class ThreadGroup:
    """State that the threads of one run share; if `serial`, one of them runs at a time."""

    def __init__(self, timeout: float, serial: bool) -> None:
        self.timeout = timeout
        self.error: BaseException | None = None
        self._places: dict[tuple[int, ...], Rendezvous] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock() if serial else None
        self._messages: dict[MessageKey, Message] = {}
        self._arrival = threading.Condition(self._lock)

    def rendezvous(self, group: tuple[int, ...]) -> Rendezvous:
        """Return the rendezvous of a group, always the same object."""
        with self._lock:
            if self.error is not None:
                raise CommError("another device failed")
            return self._places.setdefault(group, Rendezvous(len(group)))

    def fail(self, error: BaseException) -> None:
        """Abort all barriers; the first error is the one that is raised."""
        with self._lock:
            if self.error is None:
                self.error = error
            for place in self._places.values():
                place.barrier.abort()
            self._arrival.notify_all()

    @contextmanager
    def hold_turn(self) -> Iterator[None]:
        """Hold the turn while a thread runs."""
        with self._turn or nullcontext():
            yield

    @contextmanager
    def pass_turn(self) -> Iterator[None]:
        """Let other threads run within the context."""
        if self._turn is not None:
            self._turn.release()
        try:
            yield
        finally:
            if self._turn is not None:
                self._turn.acquire()

    def wait(self, barrier: threading.Barrier) -> None:
        """Wait at a barrier while other threads may run; raises `BrokenBarrierError`."""
        with self.pass_turn():
            barrier.wait(self.timeout)

    def post(self, key: MessageKey, message: Message) -> None:
        """Send a message; this never waits."""
        with self._arrival:
            self._messages[key] = message
            self._arrival.notify_all()

    def take(self, key: MessageKey) -> Message | None:
        """Return a message after it has arrived; `None` after the time-out."""
        with self.pass_turn(), self._arrival:
            self._arrival.wait_for(
                lambda: key in self._messages or self.error is not None, self.timeout
            )
            if self.error is not None:
                raise CommError("another device failed")
            return self._messages.pop(key, None)


class LocalComm(Comm):
    """A device that is a thread of this process."""

    def __init__(
        self, mesh: Mesh, rank: int, device: torch.device | str, world: ThreadGroup | None
    ) -> None:
        """Create a device; a single device needs no `world`."""
        super().__init__(mesh, rank, device)
        self._world = world or ThreadGroup(timeout=0.0, serial=False)
        self._started: Counter[tuple[int, int]] = Counter()
        """The number of messages that have started, by the devices that send and receive."""

    def meet(
        self,
        x: Tensor,
        group: tuple[int, ...],
        what: str,
        use: Callable[[Sequence[Tensor]], Tensor],
    ) -> Tensor:
        if len(group) == 1:
            return use([x])
        place, stated = self._world.rendezvous(group), f"{what} of {x.dtype}{list(x.shape)}"
        place.published[self.rank] = (x, stated, self._record_event())
        self._wait(place, what)
        parts = []
        for member in group:
            part, other, ready = place.published[member]
            if other != stated:
                error = CommError(
                    f"device {self.rank} is at {stated}, and device {member} is at {other}; "
                    "all devices of a group must call the same collectives"
                )
                self._world.fail(error)
                raise error
            self._wait_for_event(ready)
            parts.append(part.to(self.device, non_blocking=True))
        made = use(parts)
        place.read_events[self.rank] = self._record_event()
        self._wait(place, what)
        # Published tensors may be overwritten or freed once all devices have read them.
        for member in group:
            self._wait_for_event(place.read_events[member])
        del place.published[self.rank]
        return made

    def start_transfers(
        self,
        what: str,
        sends: Sequence[tuple[Tensor, int]],
        receives: Sequence[tuple[tuple[int, ...], torch.dtype, int]],
    ) -> Transfers:
        for x, device in sends:
            self._world.post(self._next_key(self.rank, device), (x, self._record_event()))
        keys = [self._next_key(device, self.rank) for *_, device in receives]
        started = _StartedTransfers(lambda: [self._take(key, what) for key in keys])
        if not keys:
            started.wait()
        return started

    def _next_key(self, source: int, target: int) -> MessageKey:
        number = self._started[source, target]
        self._started[source, target] += 1
        return source, target, number

    def _take(self, key: MessageKey, what: str) -> Tensor:
        message = self._world.take(key)
        if message is None:
            error = CommError(
                f"device {self.rank} waited {self._world.timeout:g} s for device {key[0]} at {what}"
            )
            self._world.fail(error)
            raise error
        x, ready = message
        self._wait_for_event(ready)
        if self._on_gpu and x.device == self.device:
            # The allocator must not reuse the memory before this stream has read it.
            x.record_stream(torch.cuda.current_stream(self.device))
        return x.to(self.device, non_blocking=True)

    def _wait(self, place: Rendezvous, what: str) -> None:
        try:
            self._world.wait(place.barrier)
        except threading.BrokenBarrierError:
            error = CommError(
                f"device {self.rank} waited {self._world.timeout:g} s for the others at {what}"
            )
            self._world.fail(error)
            raise error from None

    def _record_event(self) -> torch.cuda.Event | None:
        """Record an event after the work submitted so far, on a GPU."""
        return torch.cuda.current_stream(self.device).record_event() if self._on_gpu else None

    def _wait_for_event(self, event: torch.cuda.Event | None) -> None:
        """Make later work wait for an event."""
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    @property
    def _on_gpu(self) -> bool:
        return bool(self.device.type == "cuda")


class _StartedTransfers(Transfers):
    """Transfers of threads; `take` receives the tensors."""

    def __init__(self, take: Callable[[], Sequence[Tensor]]) -> None:
        self._take = take
        self._received: Sequence[Tensor] | None = None

    def has_finished(self) -> bool:
        return self._received is not None

    def wait(self) -> Sequence[Tensor]:
        if self._received is None:
            self._received = self._take()
        return self._received


def run_threads(
    mesh: Mesh,
    devices: Sequence[torch.device | str],
    work: Callable[[Comm], Made],
    timeout: float = 300.0,
) -> list[Made]:
    """Return the results of `work` for all devices of a mesh; `devices` are their torch devices.

    Raises the first error of a thread. On GPUs the results are ordered with the caller's current
    stream.
    """
    if mesh.size == 1:
        with _make_current(devices[0]):
            return [work(LocalComm(mesh, 0, devices[0], None))]
    on_gpu = any(torch.device(device).type == "cuda" for device in devices)
    serial = on_gpu or os.environ.get("TRITON_INTERPRET") == "1"
    world, results = ThreadGroup(timeout, serial), dict[int, Made]()
    before = [_record_device_event(device) for device in devices]
    after: list[torch.cuda.Event | None] = [None] * mesh.size

    def run(rank: int) -> None:
        comm = LocalComm(mesh, rank, devices[rank], world)
        try:
            with _device_stream(comm.device, rank) as stream, world.hold_turn():
                if stream is not None:
                    for event in before:
                        stream.wait_event(event)
                results[rank] = work(comm)
                if stream is not None:
                    after[rank] = stream.record_event()
        except BaseException as error:
            world.fail(error)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"device {rank}", daemon=True)
        for rank in range(mesh.size)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # for example KeyboardInterrupt
        world.fail(error)
        raise
    if world.error is not None:
        raise world.error
    for device in dict.fromkeys(map(str, devices)):
        for event in after:
            if event is not None:
                torch.cuda.current_stream(device).wait_event(event)
    return [results[rank] for rank in range(mesh.size)]


def _make_current(device: torch.device | str) -> AbstractContextManager[object]:
    """Make a GPU torch's current device: kernels are launched there, wherever tensors are."""
    is_gpu = torch.device(device).type == "cuda"
    return torch.cuda.device(device) if is_gpu else nullcontext()


def _record_device_event(device: torch.device | str) -> torch.cuda.Event | None:
    device = torch.device(device)
    return torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None


@contextmanager
def _device_stream(device: torch.device, rank: int) -> Iterator[torch.cuda.Stream | None]:
    """Make the stream of a mesh device current within the context; yield `None` on CPUs."""
    if device.type != "cuda":
        yield None
        return
    # Torch caches memory per stream, so streams are reused.
    key = str(device), rank
    if key not in _STREAMS:
        _STREAMS[key] = torch.cuda.Stream(device)
    with _make_current(device), torch.cuda.stream(_STREAMS[key]):
        yield _STREAMS[key]


_STREAMS: dict[tuple[str, int], torch.cuda.Stream] = {}
