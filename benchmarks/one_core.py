"""Measure operations on one core, compared with torch and NumPy, as minima of processor time.

Each library runs in a process of its own, with one thread. The processes alternate, and a time is
the minimum of all runs, so that other load on the machine has little influence. The ratio is the
time of shardir, divided by that of the faster library; `*` marks ratios above 1.05. The rows of
`docs/cpu_kernels.md` about convolutions are measured by `strategies.py`.

    python benchmarks/one_core.py [--rounds N] [part of a name ...]
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROUND_NANOSECONDS = 30_000_000
RATIO_OF_LOSS = 1.05
LIBRARIES = ("shardir", "torch", "numpy")
ONE_THREAD = {"SHARDIR_CPU_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
Run = Callable[[], Any]


def normals(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    return normals_of("float32", *shapes)


def normals_of(dtype: str, *shapes: tuple[int, ...]) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes)


def integers(dtype: str, *shapes: tuple[int, ...]) -> tuple[Any, ...]:
    rng, given = np.random.default_rng(0), np.iinfo(dtype)
    return tuple(rng.integers(given.min, given.max, each, dtype, endpoint=True) for each in shapes)


class Row:
    """An operation on some arrays in each of the libraries; `None` if the library lacks it."""

    def __init__(self, name: str, arrays: Callable[[], tuple[Any, ...]], shardir: Any,
                 torch: Any = None, numpy: Any = None, dtype: str = "") -> None:  # fmt: skip
        self.name, self.arrays, self.dtype = name, arrays, dtype
        self.functions = {"shardir": shardir, "torch": torch, "numpy": numpy}


def attend_shardir(is_causal: bool, sd: Any, *heads: Any) -> Any:
    moved = (sd.numpy.swapaxes(each, 1, 2) for each in heads)
    return sd.nn.dot_product_attention(*moved, is_causal=is_causal)


def attend_torch(is_causal: bool, torch: Any, *heads: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=is_causal)


def rows() -> list[Row]:
    """Return all rows; the functions take the library and the arrays."""
    found = []
    sizes: dict[str, tuple[int, ...]] = {"64 KB": (1 << 14,), "4 MB": (1 << 20,)}
    for name, shape in sizes.items():
        found += [
            Row(f"exact GELU of {name}", partial(normals, shape),
                lambda sd, x: sd.nn.gelu(x, approximate=False),
                lambda t, x: t.nn.functional.gelu(x)),
            Row(f"sigmoid of {name}", partial(normals, shape),
                lambda sd, x: sd.nn.sigmoid(x), lambda t, x: t.sigmoid(x)),
            Row(f"erf of {name}", partial(normals, shape),
                lambda sd, x: sd.lax.erf(x), lambda t, x: t.erf(x)),
            Row(f"erfc of {name}", partial(normals, shape),
                lambda sd, x: sd.lax.erfc(x), lambda t, x: t.special.erfc(x)),
        ]  # fmt: skip
    for name, shape in (
        ("64 KB", (128, 128)), ("4 MB", (1024, 1024)), ("32 MB", (4096, 2048)),
        ("4 MB, long rows", (16, 1 << 16)),
    ):  # fmt: skip
        found += [
            Row(f"sum of {name}", partial(normals, shape),
                lambda sd, x: sd.numpy.sum(x), lambda t, x: x.sum(), lambda n, x: x.sum()),
            Row(f"sums of rows of {name}", partial(normals, shape),
                lambda sd, x: sd.numpy.sum(x, 1), lambda t, x: x.sum(1), lambda n, x: x.sum(1)),
            Row(f"sums of columns of {name}", partial(normals, shape),
                lambda sd, x: sd.numpy.sum(x, 0), lambda t, x: x.sum(0), lambda n, x: x.sum(0)),
            Row(f"argmax of {name}", partial(normals, shape),
                lambda sd, x: sd.numpy.argmax(x), lambda t, x: x.argmax(),
                lambda n, x: x.argmax()),
            Row(f"argmax of rows of {name}", partial(normals, shape),
                lambda sd, x: sd.numpy.argmax(x, 1), lambda t, x: x.argmax(1),
                lambda n, x: x.argmax(1)),
            Row(f"max of {name}", partial(normals, shape),
                lambda sd, x: sd.numpy.max(x), lambda t, x: x.max(), lambda n, x: x.max()),
        ]  # fmt: skip
    for op in ("exp", "log", "tanh", "sin"):
        found.append(
            Row(f"{op} of 4 MB", partial(normals, (1 << 20,)),
                lambda sd, x, op=op: getattr(sd.numpy, op)(x),
                lambda t, x, op=op: getattr(t, op)(x),
                lambda n, x, op=op: getattr(n, op)(x)))  # fmt: skip
    found += [
        Row("cumulative sums of rows of 4 MB", partial(normals, (1024, 1024)),
            lambda sd, x: sd.numpy.cumsum(x, 1), lambda t, x: t.cumsum(x, 1),
            lambda n, x: n.cumsum(x, 1)),
        Row("transpose of 4 MB", partial(normals, (1024, 1024)),
            lambda sd, x: x.T, lambda t, x: x.T.contiguous(), lambda n, x: n.array(x.T, order="C")),
    ]  # fmt: skip
    for size in (256, 1024, 2048):
        found.append(
            Row(f"{size}³ of f32", partial(normals, (size, size), (size, size)),
                lambda sd, x, y: x @ y, lambda t, x, y: x @ y, lambda n, x, y: x @ y))  # fmt: skip
    for dtype, is_causal in product(("", "bfloat16"), (False, True)):
        found.append(
            Row(f"{dtype} attention of 8 heads of 64, length 1024, is_causal={is_causal}".lstrip(),
                partial(normals, *[(1, 8, 1024, 64)] * 3),
                partial(attend_shardir, is_causal), partial(attend_torch, is_causal),
                dtype=dtype))  # fmt: skip
    for size in (256, 1024):
        found.append(
            Row(f"{size}³ of i8", partial(integers, "int8", (size, size), (size, size)),
                lambda sd, x, y: sd.lax.dot(x, y, preferred_element_type="int32"),
                lambda t, x, y: t._int_mm(x, y)))  # fmt: skip
    for batch, m, k, n in ((24, 128, 64, 128), (24, 128, 128, 64), (1, 512, 512, 512)):
        found.append(
            Row(f"{batch} products of bf16, {m}x{k}x{n}",
                partial(normals, (batch, m, k), (batch, k, n)),
                lambda sd, x, y: x @ y, lambda t, x, y: x @ y, dtype="bfloat16"))  # fmt: skip
    for dtype in ("int16", "float32", "float64"):
        found.append(
            Row(f"sort of 1024 lines of 256, {dtype}",
                partial(integers if dtype == "int16" else normals_of, dtype, (1024, 256)),
                lambda sd, x: sd.numpy.sort(x, 1), lambda t, x: t.sort(x, 1).values,
                lambda n, x: n.sort(x, 1)))  # fmt: skip
    return found


def make_run(library: str, row: Row) -> Run | None:
    function = row.functions[library]
    if function is None:
        return None
    arrays = row.arrays()
    if library == "numpy":
        return lambda: function(np, *arrays)
    if library == "torch":
        import torch

        tensors = [torch.from_numpy(array) for array in arrays]
        if row.dtype:
            tensors = [each.to(getattr(torch, row.dtype)) for each in tensors]
        return lambda: function(torch, *tensors)
    import shardir as sd
    import shardir.lax
    import shardir.nn
    import shardir.numpy

    sd.config.update("enable_x64", True)
    found = [sd.numpy.asarray(array, row.dtype or array.dtype) for array in arrays]
    compiled = sd.jit(lambda *given: function(sd, *given))
    return lambda: compiled(*found)


def serve(library: str) -> None:
    """Answer each line, a name or the number of a row, with the minimum nanoseconds of its runs."""
    known, runs = rows(), dict[int, Run | None]()
    for line in sys.stdin:
        number = int(line)
        if number not in runs:
            runs.clear()
            runs[number] = make_run(library, known[number])
            for _ in range(3):
                (runs[number] or int)()
        run, best = runs[number], -1
        end = time.process_time_ns() + ROUND_NANOSECONDS
        while run is not None and time.process_time_ns() < end:
            start = time.process_time_ns()
            run()
            taken = time.process_time_ns() - start
            best = taken if best < 0 else min(best, taken)
        print(f"={best}", flush=True)


def ask(process: "subprocess.Popen[str]", number: int) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    print(number, file=process.stdin, flush=True)
    for line in process.stdout:
        if line.startswith("="):
            return int(line[1:])
    return -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", default=[], help="parts of names of rows")
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return
    processes = {
        library: subprocess.Popen(
            [sys.executable, Path(__file__), "--serve", library],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | ONE_THREAD,
        )
        for library in LIBRARIES
    }  # fmt: skip
    print(f"| operation | {' us | '.join(LIBRARIES)} us | ratio |\n|---|---|---|---|---|")
    for number, row in enumerate(rows()):
        if given.names and not any(name in row.name for name in given.names):
            continue
        best = dict.fromkeys(LIBRARIES, float("inf"))
        for turn in range(given.rounds):
            for library in LIBRARIES if turn % 2 else reversed(LIBRARIES):
                taken = ask(processes[library], number)
                best[library] = min(best[library], taken if taken >= 0 else float("inf"))
        ratio = best["shardir"] / min(best["torch"], best["numpy"])
        times = " | ".join(f"{best[library] / 1e3:.1f}" for library in LIBRARIES)
        mark = " *" if ratio > RATIO_OF_LOSS else ""
        print(f"| {row.name} | {times} | {ratio:.2f}{mark} |", flush=True)
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
