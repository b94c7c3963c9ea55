"""Measure programs on one GPU, compared with JAX and torch.compile: `python benchmarks/gpu.py`.

All libraries use the same precision of matrix products: f32 is multiplied as f32, bf16 is
accumulated in f32. The results are compared before the measurement. For workloads that are limited
by memory, the last column shows their bandwidth relative to that of a copy on the same GPU.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from gpu_workloads import Workload, workloads

REPEATS, RUNS = 5, 20
TOLERANCE = {"float32": 2e-3, "bfloat16": 8e-2}
BYTES = {"float32": 4, "bfloat16": 2}

Run = Callable[[], Any]


def shardir_run(work: Workload, kind: str) -> Run:
    import shardir as sd
    import shardir.numpy as snp

    library = SimpleNamespace(top=sd, numpy=snp, nn=sd.nn)
    device = sd.devices("gpu")[0]
    given = [sd.device_put(snp.asarray(x).astype(work.dtype), device) for x in work.arguments()]
    function = sd.jit(work.ours(library))
    return lambda: function(*given)


def jax_run(work: Workload, kind: str) -> Run:
    # Three libraries share the memory of the GPU.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    if kind == "cuda" and jax.default_backend() != "gpu":
        raise ImportError("JAX sees no GPU")
    library = SimpleNamespace(top=jax, numpy=jnp, nn=jax.nn)
    given = [jnp.asarray(x).astype(work.dtype) for x in work.arguments()]
    function = jax.jit(work.ours(library))
    return lambda: function(*given)


def torch_run(work: Workload, kind: str) -> Run:
    import torch

    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    dtype = getattr(torch, work.dtype)
    given = [torch.from_numpy(x).to(kind, dtype) for x in work.arguments()]
    function = torch.compile(work.theirs(torch))

    def run() -> Any:
        with torch.no_grad():
            return function(*given)

    return run


LIBRARIES = {"shardir": shardir_run, "JAX": jax_run, "torch.compile": torch_run}


def wait(result: Any) -> None:
    """Wait until everything is computed: one GPU runs kernels one after the other."""
    last = result[-1] if isinstance(result, tuple | list) else result
    if hasattr(last, "block_until_ready"):
        last.block_until_ready()
    elif last.is_cuda:
        import torch

        torch.cuda.synchronize()


def seconds(run: Run) -> float:
    """Return the seconds of one run when many are started one after the other: a median."""
    for _ in range(3):
        wait(run())
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        for _ in range(RUNS):
            result = run()
        wait(result)
        times.append((time.perf_counter() - started) / RUNS)
    return statistics.median(times)


def copy_bandwidth(kind: str, scale: int) -> float:
    """Bytes read and written in a second by a copy of one large tensor to another."""
    import torch

    x = torch.empty((1 << 30) // scale**2, dtype=torch.uint8, device=kind)
    y = torch.empty_like(x)
    return 2.0 * float(x.numel()) / seconds(lambda: y.copy_(x))


def numbers(result: Any) -> list[Any]:
    """Results as NumPy arrays of f64."""
    leaves = result if isinstance(result, tuple | list) else [result]
    return [
        np.asarray(x.float().cpu() if hasattr(x, "cpu") else x).astype(np.float64) for x in leaves
    ]


def differs(got: Any, wanted: Any, allowed: float) -> bool:
    """Return whether results differ too much, relative to the largest of them."""
    return any(
        np.abs(a - b).max() > allowed * max(np.abs(b).max(), 1e-30)
        for a, b in zip(numbers(got), numbers(wanted), strict=True)
    )


def compare(work: Workload, kind: str, bandwidth: float) -> str:
    """One line of the table."""
    found, first = {}, None
    for name, make in LIBRARIES.items():
        try:
            run = make(work, kind)
        except ImportError:
            continue
        result = run()
        first = result if first is None else first
        if differs(result, first, TOLERANCE[work.dtype]):
            raise SystemExit(f"{name} computes something else for {work.name} of {work.dtype}")
        found[name] = seconds(run)
    others = [time for name, time in found.items() if name != "shardir"]
    cells = [f"{1e3 * found[name]:>14.3f}" if name in found else f"{'-':>14}" for name in LIBRARIES]
    ratio = f"{min(others) / found['shardir']:>9.2f}" if others else f"{'-':>9}"
    share = f"{'':>9}"
    if work.moves:
        moved = work.moves * BYTES[work.dtype] * np.prod(work.shapes[0])
        share = f"{moved / found['shardir'] / bandwidth:>9.0%}"
    return f"{work.name:<27}{work.dtype:<10}{''.join(cells)}{ratio}{share}"


def reason_for_none() -> str:
    """Return why nothing can be measured here; empty where there is a GPU."""
    try:
        import torch
    except ModuleNotFoundError:
        return "PyTorch is not installed; pip install 'shardir[gpu]'"
    return "" if torch.cuda.is_available() else "torch sees no GPU on this machine"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes")
    parser.add_argument("--cpu", action="store_true", help="try the benchmark out where no GPU is")
    parser.add_argument("names", nargs="*", help="the first words of workloads; otherwise all")
    options = parser.parse_args()
    reason = "" if options.cpu else reason_for_none()
    if reason:
        print(f"nothing to measure: {reason}")
        return
    import torch

    kind = "cpu" if options.cpu else "cuda"
    if options.cpu:
        from shardir.backends.gpu.backend import BACKEND

        BACKEND.kind = "cpu"
    device = "the CPU, which shows nothing about speed" if options.cpu else ""
    device = device or torch.cuda.get_device_name()
    bandwidth = copy_bandwidth(kind, options.scale)
    print(f"on {device}; torch {torch.__version__}; a copy moves {bandwidth / 1e9:,.0f} GB/s")
    print(f"\n{'milliseconds':<37}{''.join(f'{name:>14}' for name in LIBRARIES)}    ratio  of copy")
    for work in workloads(options.scale):
        if options.names and not work.name.startswith(tuple(options.names)):
            continue
        print(compare(work, kind, bandwidth), flush=True)
    print("\nratio: the time of the better of the two others by that of shardir; more is better")


if __name__ == "__main__":
    main()
