"""The interface in which the workloads of `cpu.py` are written: names that shardir and JAX share.

    python benchmarks/cpu_library.py shardir

starts a process (`Worker`) that runs the workloads that lines of JSON on its standard input name.
The other libraries are jax, torch, torch.compile, numpy and numba.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

DEVICES = 8


@dataclass(frozen=True)
class Library:
    """shardir or JAX: its parts by the names that both have."""

    name: str
    top: Any
    numpy: Any
    lax: Any
    nn: Any
    mesh_of: Callable[[tuple[int, ...], tuple[str, ...]], Any]
    named: Callable[[Any, Any], Any]
    spec: Callable[..., Any]

    def sharding(self, mesh: Any, *spec: Any) -> Any:
        return self.named(mesh, self.spec(*spec))

    def put(self, array: Any, mesh: Any = None, *spec: Any) -> Any:
        """Return an array on one device, or sharded over a mesh."""
        if mesh is None:
            return self.top.device_put(array, self.top.devices()[0])
        return self.top.device_put(array, self.sharding(mesh, *spec))

    def draw(self, shape: tuple[int, ...], mesh: Any = None, *spec: Any, scale: float = 1) -> Any:
        """Normal numbers, the same for both libraries."""
        numbers = np.random.default_rng(0).standard_normal(shape, np.float32) * np.float32(scale)
        return self.put(numbers, mesh, *spec)

    def mapped(self, function: Callable[..., Any], mesh: Any, ins: Any, outs: Any) -> Any:
        """Return a function of the shards of each device."""
        return self.top.jit(
            self.top.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)
        )


def shardir() -> Library:
    import shardir as sd
    import shardir.lax
    import shardir.nn
    import shardir.numpy
    from shardir.sharding import NamedSharding, PartitionSpec

    def mesh_of(shape: tuple[int, ...], axes: tuple[str, ...]) -> Any:
        return sd.Mesh(np.array(sd.devices()[: int(np.prod(shape))]).reshape(shape), axes)

    return Library(
        "shardir", sd, sd.numpy, sd.lax, sd.nn, mesh_of, NamedSharding, PartitionSpec
    )  # fmt: skip


def jax() -> Library:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    import jax
    import jax.lax
    import jax.nn
    import jax.numpy
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    def mesh_of(shape: tuple[int, ...], axes: tuple[str, ...]) -> Any:
        return Mesh(np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape), axes)

    return Library("jax", jax, jax.numpy, jax.lax, jax.nn, mesh_of, NamedSharding, PartitionSpec)


def identity(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Worker:
    """Runs one workload at a time; every request is answered with a line of JSON."""

    def __init__(self, name: str) -> None:
        from cpu_workloads import workloads

        self.workloads = {each.name: each for each in workloads()}
        self.name = name
        # The others have workloads of their own.
        make_library = {"shardir": shardir, "jax": jax}.get(name)
        self.library = make_library() if make_library else None
        self.run: Callable[[], Any] | None = None

    def prepare(self, name: str) -> dict[str, Any]:
        """Make arrays and compile; return the time of the first run."""
        self.drop()
        self.run = self.make(name)
        if self.run is None:
            return {"none": True}
        begin = time.perf_counter()
        self.run()
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        self.run()
        return {"first": first, "second": time.perf_counter() - begin}

    def make(self, name: str) -> Callable[[], Any] | None:
        """Return the workload of this library, or None if the library does not have it."""
        workload = self.workloads[name]
        if self.library is not None:
            return workload.make(self.library)
        if self.name.startswith("torch"):
            import torch
            from cpu_torch import PROGRAMS

            make = PROGRAMS.get(name)
            return make and make(torch.compile if self.name == "torch.compile" else identity)
        return workload.numpy and workload.numpy(self.name == "numba")

    def time(self, number: int) -> dict[str, Any]:
        """Return the seconds of the runs, and the limits of the machine at that time."""
        assert self.run is not None
        seconds = []
        for _ in range(number):
            begin = time.perf_counter()
            self.run()
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds} | self.limits()

    def limits(self) -> dict[str, float]:
        """Bytes copied and floating-point operations (f32) a second."""
        if self.library is None or self.library.name != "shardir":
            return {}
        from shardir.backends.cpu.availability import unavailable_reason

        if unavailable_reason() is not None:
            return {}
        from shardir.backends.cpu.threads.roofline import measure
        from shardir.backends.cpu.threads.workers import worker_pool

        return measure(worker_pool())._asdict()

    def drop(self) -> dict[str, Any]:
        self.run = None
        gc.collect()
        return {}

    def serve(self) -> None:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = getattr(self, request.pop("do"))(**request)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[:1]}"}
            print("=" + json.dumps(answer), flush=True)


if __name__ == "__main__" and len(sys.argv) > 1:
    Worker(sys.argv[1]).serve()
