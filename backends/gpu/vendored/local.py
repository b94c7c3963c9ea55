"""Several devices of a mesh in one process: a thread each.

They may share a GPU, each with a stream of its own, or have several, or be on the CPU. Devices that
meet show each other their tensors and read them directly: all of a group come to one place, wait
until everybody is there, take what they need, and wait until everybody has taken it. On GPUs
the threads do not wait for what is computed, only for each other: events put the work in order.

Triton compiles and interprets with global state. Where it does either, one thread at a time goes
on, until it has to wait for the others; what they start on GPUs runs side by side all the same.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from shardir.backends.gpu.vendored.comm import Comm, CommError
from shardir.backends.gpu.vendored.layout import Mesh

Tensor = Any


class Place:
    """Where a group meets."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        self.shown: dict[int, Any] = {}
        self.taken: dict[int, Any] = {}


class World:
    """What the threads of one run share; if `serial`, one of them at a time goes on."""

    def __init__(self, timeout: float, serial: bool) -> None:
        self.timeout = timeout
        self.error: BaseException | None = None
        self._places: dict[tuple[int, ...], Place] = {}
        self._lock = threading.Lock()
        self._serial = serial
        self._turn: Any = threading.Lock() if serial else nullcontext()

    def place(self, group: tuple[int, ...]) -> Place:
        """Where a group meets, always the same."""
        with self._lock:
            if self.error is not None:
                raise CommError("another device failed")
            return self._places.setdefault(group, Place(len(group)))

    def fail(self, error: BaseException) -> None:
        """Let nobody wait any longer; the first error is the one that is told."""
        with self._lock:
            if self.error is None:
                self.error = error
            for place in self._places.values():
                place.barrier.abort()

    @contextmanager
    def working(self) -> Any:
        """Around all that a thread does."""
        with self._turn:
            yield

    def wait(self, barrier: threading.Barrier) -> None:
        """Wait for the others, who may work meanwhile; raises `BrokenBarrierError`."""
        if self._serial:
            self._turn.release()
        try:
            barrier.wait(self.timeout)
        finally:
            if self._serial:
                self._turn.acquire()


class LocalComm(Comm):
    """One of several devices in this process."""

    def __init__(self, mesh: Mesh, rank: int, device: Any, world: World | None) -> None:
        """A device alone in its mesh needs no world."""
        super().__init__(mesh, rank, device)
        self._world: Any = world

    def meet(
        self,
        x: Tensor,
        group: tuple[int, ...],
        what: str,
        use: Callable[[Sequence[Tensor]], Tensor],
    ) -> Tensor:
        if len(group) == 1:
            return use([x])
        place, stated = self._world.place(group), f"{what} of {x.dtype}{list(x.shape)}"
        place.shown[self.rank] = (x, stated, self._mark())
        self._wait(place, what)
        parts = []
        for member in group:
            part, other, ready = place.shown[member]
            if other != stated:
                error = CommError(
                    f"device {self.rank} is at {stated}, and device {member} is at {other}; "
                    "all devices of a group must do the same"
                )
                self._world.fail(error)
                raise error
            self._after(ready)
            parts.append(part.to(self.device, non_blocking=True))
        made = use(parts)
        place.taken[self.rank] = self._mark()
        self._wait(place, what)
        # What was shown may be overwritten or freed once all have read it.
        for member in group:
            self._after(place.taken[member])
        del place.shown[self.rank]
        return made

    def _wait(self, place: Place, what: str) -> None:
        try:
            self._world.wait(place.barrier)
        except threading.BrokenBarrierError:
            error = CommError(
                f"device {self.rank} waited {self._world.timeout:g} s for the others at {what}"
            )
            self._world.fail(error)
            raise error from None

    def _mark(self) -> Any:
        """What is computed up to here, on a GPU."""
        return torch.cuda.current_stream(self.device).record_event() if self._on_gpu else None

    def _after(self, event: Any) -> None:
        """Compute what follows only after an event."""
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    @property
    def _on_gpu(self) -> bool:
        return bool(self.device.type == "cuda")


def run_threads(
    mesh: Mesh,
    devices: Sequence[Any],
    work: Callable[[Comm], Any],
    timeout: float = 300.0,
) -> list[Any]:
    """What `work` returns for each device of a mesh, all at once; `devices` has where each is.

    Raises what the first thread to fail raised. On a GPU what is returned is in order with the
    stream on which the caller works.
    """
    if mesh.size == 1:
        with _current(devices[0]):
            return [work(LocalComm(mesh, 0, devices[0], None))]
    on_gpu = any(torch.device(device).type == "cuda" for device in devices)
    serial = on_gpu or os.environ.get("TRITON_INTERPRET") == "1"
    world, results = World(timeout, serial), [None] * mesh.size
    before = [_event(device) for device in devices]
    after: list[Any] = [None] * mesh.size

    def run(rank: int) -> None:
        comm = LocalComm(mesh, rank, devices[rank], world)
        try:
            with _stream(comm.device, rank) as stream, world.working():
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
    except BaseException as error:  # of the user's, who wants no more of it
        world.fail(error)
        raise
    if world.error is not None:
        raise world.error
    for device in dict.fromkeys(map(str, devices)):
        for event in after:
            if event is not None:
                torch.cuda.current_stream(device).wait_event(event)
    return results


def _current(device: Any) -> Any:
    """A device as torch's own; kernels are launched on that one, wherever their tensors are."""
    is_gpu = torch.device(device).type == "cuda"
    return torch.cuda.device(device) if is_gpu else nullcontext()


def _event(device: Any) -> Any:
    device = torch.device(device)
    return torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None


@contextmanager
def _stream(device: Any, rank: int) -> Any:
    """The stream of a device of the mesh on its GPU, current inside; nothing elsewhere."""
    if device.type != "cuda":
        yield None
        return
    # Torch keeps memory for each stream, so that the streams are always the same.
    key = str(device), rank
    if key not in _STREAMS:
        _STREAMS[key] = torch.cuda.Stream(device)
    with _current(device), torch.cuda.stream(_STREAMS[key]):
        yield _STREAMS[key]


_STREAMS: dict[tuple[str, int], Any] = {}
