"""Measure programs of several processes: an all-reduce and training steps.

The first table compares sums of up to 64 MiB in single precision over two processes, which mpiexec
or `shardir launch` has started, with `MPI.Allreduce` of mpi4py (`plain`); the two alternate. The
second table has training steps on eight devices, which are distributed over one, two or four
processes on the same cores. Ratios are of medians.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from cpu_library import Library, shardir
from cpu_models import convolution_step, mlp_gradient, transformer_step
from rich.console import Console
from rich.table import Table

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.sharding import NamedSharding, PartitionSpec as P

REPEATS = 21
CORES = max(2, os.cpu_count() or 1)
MEBIBYTES = (1, 4, 16, 64)
LAUNCHERS = {
    "mpiexec": [str(Path(sys.executable).parent / "mpiexec")],
    "launch": [sys.executable, "-m", "shardir", "launch"],
}
WIDTHS = (784, 1024, 1024, 10)
BATCH = 2048


def timed(*calls: Callable[[], object]) -> list[float]:
    """Return the median time of each call, in milliseconds; they alternate."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(REPEATS):
        for call, mine in zip(calls, times, strict=True):
            sd.distributed.barrier()
            start = time.perf_counter()
            call()
            mine.append((time.perf_counter() - start) * 1e3)
    return [median(mine[1:]) for mine in times]


def sums(launcher: str) -> list[list[float]]:
    """Return for each size the times of shardir's all-reduce and, with mpiexec, of MPI's."""
    sd.distributed.initialize()
    if launcher == "mpiexec":
        from mpi4py import MPI

    mesh = sd.make_mesh((2,), ("data",))
    found = []
    for size in MEBIBYTES:
        numbers = np.ones((2, size << 18), np.float32)
        x = sd.device_put(numbers, NamedSharding(mesh, P("data")))
        total = sd.jit(
            sd.shard_map(
                lambda x: lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P(None)
            )
        )
        part = np.asarray(x.addressable_shards[0].data).reshape(-1)

        def plain(part: Any = part) -> None:
            # A new array for each result, as in shardir.
            MPI.COMM_WORLD.Allreduce(part, np.empty_like(part))

        found.append(timed(partial(total, x), *([plain] if launcher == "mpiexec" else [])))
    return found


def perceptron(library: Library) -> Callable[[], Any]:
    """A training step with its batch sharded over all devices."""
    mesh = sd.make_mesh((len(sd.devices()),), ("data",))
    rng = np.random.default_rng(0)
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    params = [
        sd.device_put((rng.standard_normal(shape) / 30).astype(np.float32), whole)
        for shape in pairwise(WIDTHS)
    ]
    x = sd.device_put(rng.standard_normal((BATCH, WIDTHS[0])).astype(np.float32), rows)
    y = sd.device_put(rng.standard_normal((BATCH, WIDTHS[-1])).astype(np.float32), rows)

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w in params[:-1]:
            x = snp.maximum(x @ w, 0)
        return snp.mean((x @ params[-1] - y) ** 2)

    @sd.jit
    def step(params: Any, x: Any, y: Any) -> Any:
        gradients = sd.grad(loss)(params, x, y)
        return [w - 0.1 * g for w, g in zip(params, gradients, strict=True)]

    return lambda: step(params, x, y)


STEPS: dict[str, Callable[[Library], Callable[[], Any]]] = {
    f"perceptron {WIDTHS}, batch {BATCH}": perceptron,
    "MLP gradient, 8-way data": mlp_gradient((8, 1)),
    "MLP gradient, 4 x 2": mlp_gradient((4, 2)),
    "transformer step, 4 x 2": transformer_step((4, 2)),
    "convolution step, cut in space": convolution_step("space"),
}


def steps() -> list[float]:
    """The time of each step."""
    sd.distributed.initialize()
    library = shardir()
    return [timed(make(library))[0] for make in STEPS.values()]


def run(what: str, processes: int, devices: int, launcher: str = "mpiexec") -> Any:
    """The result of `what` in process 0 of that number of processes."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    done = subprocess.run(
        [
            *LAUNCHERS[launcher],
            *("-n", str(processes), sys.executable, __file__, what, launcher),
        ],
        env={
            **os.environ,
            "SHARDIR_CPU_DEVICES": str(devices),
            "OPENBLAS_NUM_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
        },
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))


def main() -> None:
    if len(sys.argv) > 1:
        found = sums(sys.argv[2]) if sys.argv[1] == "sums" else steps()
        if sd.process_index() == 0:
            print(json.dumps(found))
        return
    console = Console()
    headers = ("MiB", "MPI.Allreduce", "ours over MPI", "speed", "ours over sockets", "speed")
    table = Table(*headers, title="all-reduce, 2 processes")
    rows = zip(MEBIBYTES, run("sums", 2, 2), run("sums", 2, 2, "launch"), strict=True)
    for size, (ours, theirs), (sockets,) in rows:
        cells = [f"{ours:.2f} ms", f"{theirs / ours:.2f}"]
        cells += [f"{sockets:.2f} ms", f"{theirs / sockets:.2f}"]
        table.add_row(str(size), f"{theirs:.2f} ms", *cells)
    console.print(table)
    one, two, four = (run("steps", count, 8) for count in (1, 2, 4))
    table = Table("step", "1 process", "2", "speed", "4", "speed", title=f"steps on {CORES} cores")
    for name, *times in zip(STEPS, one, two, four, strict=True):
        alone = times[0]
        table.add_row(
            name,
            f"{alone:.0f} ms",
            *(text for each in times[1:] for text in (f"{each:.0f} ms", f"{alone / each:.2f}")),
        )
    console.print(table)


if __name__ == "__main__":
    main()
