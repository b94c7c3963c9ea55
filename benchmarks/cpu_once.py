"""Measurements that need a new process, for `cpu.py`: first call of a function, memory of a step.

    python benchmarks/cpu_once.py shardir|jax first|memory

Prints seconds (tracing, passes and compilation, without the creation of arrays), or bytes.
"""

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def first(library: Any) -> float:
    """Seconds of the first call of the MLP gradient, on one device; a run is taken off."""
    from cpu_models import mlp_arguments, mlp_loss

    arguments = mlp_arguments(library, None)
    slope = library.top.jit(library.top.grad(lambda *args: mlp_loss(library, *args)))
    wait = library.top.block_until_ready
    wait(arguments)
    begin = time.perf_counter()
    wait(slope(*arguments))
    end = time.perf_counter()
    wait(slope(*arguments))
    return end - begin - (time.perf_counter() - end)


def memory(library: Any) -> float:
    """The most bytes in use during steps of the MLP, arguments too, which are donated."""
    from cpu_models import mlp_arguments, mlp_loss

    mesh = library.mesh_of((8, 1), ("data", "model"))
    wait = library.top.block_until_ready
    wait(library.top.jit(lambda x: x + 1)(library.draw((8,), mesh, "data")))
    before = status("VmRSS")
    params, x, y = mlp_arguments(library, mesh)

    def step(params: Any, x: Any, y: Any) -> Any:
        slope = library.top.grad(lambda p: mlp_loss(library, p, x, y))(params)
        return [
            (w - 0.01 * dw, b - 0.01 * db) for (w, b), (dw, db) in zip(params, slope, strict=True)
        ]

    compiled = library.top.jit(step, donate_argnums=0)
    params = wait(compiled(params, x, y))
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    for _ in range(3):
        params = wait(compiled(params, x, y))
    return status("VmHWM") - before


def status(field: str) -> float:
    """Bytes, as Linux counts them for this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return float(dict(line.split(":", 1) for line in lines)[field].split()[0]) * 1024


if __name__ == "__main__" and len(sys.argv) > 2:
    import cpu_library

    chosen = getattr(cpu_library, sys.argv[1])()
    print({"first": first, "memory": memory}[sys.argv[2]](chosen))
