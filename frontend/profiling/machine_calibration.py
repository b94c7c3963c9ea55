"""Microbenchmarks of the CPU backend: products, elementwise operations and collectives.

Each benchmark calls a compiled function for some time, in several rounds. Its time is the median,
over the rounds, of the fastest call, because other programs on the machine delay some calls. The
results describe the machine for simulations (`shardir.machine`).
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shardir.backends.cpu.threads.cgroups import available_memory_bytes
from shardir.backends.cpu.threads.workers import worker_count
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.config import enable_x64
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.lax.collective_ops.collectives import (
    all_gather,
    all_to_all,
    ppermute,
    psum,
    psum_scatter,
)
from shardir.frontend.numpy.creation.filling import ones
from shardir.frontend.profiling import operation_benchmarks as operations
from shardir.frontend.profiling.microbenchmark import Key, Microbenchmark
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.devices import devices
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.transforms.manual.shard_map import shard_map
from shardir.ir.dtypes import DTYPE_INFO
from shardir.machine.measurements import Measurements, OperationPoints

MATMUL_SIZES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 576, 768, 960)
"""The rows and columns of square matrices."""
MATMUL_DTYPES = ("f32", "f64", "bf16")
COPY_BYTES = tuple(12288 << shift for shift in range(1, 14))
"""The bytes of the operand and of the result of an elementwise operation."""
COLLECTIVE_BYTES = tuple(4096 << shift for shift in range(0, 13, 2))
"""The larger of the bytes of the operand and of the result on each device."""
MAX_GROUP_DEVICES = 8
"""The maximum number of devices of a group."""
CHAIN_LENGTH = 33
"""The number of small products whose time, less that of one, is the time of their launches."""
FUSED_OPERATIONS = 64
"""The number of operations of the elementwise kernel that measures the rate of arithmetic."""
FUSED_ELEMENTS = (1024, 8192, 65536)
MIN_SHARE = 0.3
"""The least share of the work in the time of a call that counts as a measurement."""
ROUND_COUNT = 5
ROUND_SECONDS = 0.006
"""The time of one benchmark in one round."""


def measure_local_machine(
    progress: Callable[[int, int], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurements:
    """Run all benchmarks; `progress` receives the number of finished ones and of all, and `clock`
    returns the seconds that are measured."""
    with enable_x64():
        benchmarks = _list_benchmarks()
        _run_rounds(benchmarks, progress, clock)
    medians = {key: benchmark.seconds for key, benchmark in benchmarks.items()}
    one = medians["chain", "", 1, 1.0]
    launch = max((medians["chain", "", 1, CHAIN_LENGTH] - one) / (CHAIN_LENGTH - 1), 1e-9)
    calls = {group: seconds for (section, _, group, _), seconds in medians.items()
             if section == "call"}  # fmt: skip
    calls[1] = one - launch

    def points(section: str, name: str, group: int = 1) -> list[tuple[float, float]]:
        """Return sizes and seconds without the time of the call from Python.

        Sizes whose time is little more than that of the call are left out: the difference is noise.
        """
        measured = sorted(
            (key[3], seconds)
            for key, seconds in medians.items()
            if key[:3] == (section, name, group)
        )
        work = [(size, max(seconds - calls[group], 1e-9), seconds) for size, seconds in measured]
        clear = [(size, net) for size, net, seconds in work if net >= MIN_SHARE * seconds]
        return clear if len(clear) > 1 else [(size, net) for size, net, _ in work[-2:]]

    collectives = {key[1:3] for key in medians if key[0] == "collective"}
    return Measurements(
        memory_capacity=available_memory_bytes(),
        launch_seconds=launch,
        matmul={dtype: points("matmul", dtype) for dtype in MATMUL_DTYPES},
        pointwise={"default": points("pointwise", "default"), "f64": points("pointwise", "f64")},
        copies=points("copy", ""),
        collectives={
            (kind, group): points("collective", kind, group) for kind, group in sorted(collectives)
        },
        reads=points("read", ""),
        operations=_operation_times(medians, calls[1]),
        call=_call_time(medians, launch),
        masked_edge=operations.masked_edge(
            medians["attention", "", 1, 0.0] - calls[1], medians["attention", "", 1, 1.0] - calls[1]
        ),
        processor=f"{_processor_name()}, {worker_count()} threads",
    )


def _run_rounds(
    benchmarks: Mapping[Key, Microbenchmark],
    progress: Callable[[int, int], None] | None,
    clock: Callable[[], float],
) -> None:
    """Run all rounds of all benchmarks."""
    total = ROUND_COUNT * len(benchmarks)
    for number in range(ROUND_COUNT):
        for position, benchmark in enumerate(benchmarks.values()):
            benchmark.run(ROUND_SECONDS, clock)
            if progress is not None:
                progress(number * len(benchmarks) + position + 1, total)


def _operation_times(medians: Mapping[Key, float], call: float) -> OperationPoints:
    """Return sizes and seconds for each element by operation and dtype, without the time of the
    call from Python."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for key in operations.list_operation_keys(medians):
        word, dtype, _, size = key
        seconds = max(medians[key] - call, 1e-9) / operations.elements_of(key)
        found.setdefault(word, {}).setdefault(dtype, []).append((size, seconds))
    return found


def _call_time(medians: Mapping[Key, float], launch: float) -> tuple[float, float]:
    """Return the time of a call without its kernels and arrays, and that of each array."""
    (few, short), (many, long) = sorted(
        (key[3], seconds) for key, seconds in medians.items() if key[0] == "arrays"
    )
    # There is one kernel for each result, and as many results as arguments.
    each = max((long - short) / (many - few) - launch / 2, 0.0)
    return max(short - few * (each + launch / 2), 0.0), each


def _list_benchmarks() -> dict[Key, Microbenchmark]:
    found: dict[Key, Microbenchmark] = {}
    for dtype in MATMUL_DTYPES:
        for n in MATMUL_SIZES:
            matrix = ones((n, n), dtype=DTYPE_INFO[dtype].numpy)
            found["matmul", dtype, 1, 2.0 * n**3] = Microbenchmark(jit(_multiply), (matrix, matrix))
    small = ones((4, 4), dtype="float32")
    found["chain", "", 1, 1.0] = Microbenchmark(jit(_multiply), (small, small))
    found["chain", "", 1, CHAIN_LENGTH] = Microbenchmark(jit(_multiply_in_chain), (small, small))
    for nbytes in COPY_BYTES:
        vector = ones((nbytes // 4,), dtype="float32")
        found["copy", "", 1, 2.0 * nbytes] = Microbenchmark(jit(_increment), (vector,))
    for dtype, name in (("default", "float32"), ("f64", "float64")):
        for count in FUSED_ELEMENTS:
            vector = ones((count,), dtype=name)
            key = ("pointwise", dtype, 1, float(FUSED_OPERATIONS * count))
            found[key] = Microbenchmark(jit(_iterate), (vector,))
    found |= operations.list_operations() | operations.list_attention() | operations.list_calls()
    group = 2
    while group <= min(len(devices()), MAX_GROUP_DEVICES):
        found |= _list_collectives(group)
        group *= 2
    return found


def _list_collectives(group: int) -> dict[Key, Microbenchmark]:
    """Return benchmarks of all collectives over one group of devices."""
    mesh = make_mesh((group,), ("d",), devices=devices()[:group])
    spec = PartitionSpec("d")
    sharding = NamedSharding(mesh, spec)
    pairs = [(device, (device + 1) % group) for device in range(group)]
    bodies: dict[str, Callable[[object], object]] = {
        "all-reduce": lambda x: psum(x, "d"),
        "all-gather": lambda x: all_gather(x, "d", tiled=True),
        "reduce-scatter": lambda x: psum_scatter(x, "d", tiled=True),
        "all-to-all": lambda x: all_to_all(x, "d", 0, 0, tiled=True),
        "collective-permute": lambda x: ppermute(x, "d", pairs),
    }

    def compile_on_mesh(body: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
        return jit(shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec))

    def vector(nbytes: int) -> object:
        return device_put(ones((group * nbytes // 4,), dtype="float32"), sharding)

    found: dict[Key, Microbenchmark] = {
        ("call", "", group, 0.0): Microbenchmark(compile_on_mesh(_increment), (vector(4),))
    }
    for kind, body in bodies.items():
        function = compile_on_mesh(body)
        for nbytes in COLLECTIVE_BYTES:
            operand = nbytes // group if kind == "all-gather" else nbytes
            key = ("collective", kind, group, float(nbytes))
            found[key] = Microbenchmark(function, (vector(operand),))
    return found


def _multiply(x: Any, y: Any) -> object:
    return x @ y


def _multiply_in_chain(x: Any, y: Any) -> object:
    for _ in range(CHAIN_LENGTH):
        x = x @ y
    return x


def _increment(x: Any) -> object:
    return x + 1


def _iterate(x: Any) -> object:
    y = x
    for _ in range(FUSED_OPERATIONS // 2):
        y = y * x + x
    return y


def _processor_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    names = [line.partition(":")[2].strip() for line in text.splitlines()
             if line.startswith("model name")]  # fmt: skip
    return names[0] if names else "an unnamed processor"
