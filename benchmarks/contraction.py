"""Measure the native kernels of contractions: GF/s, compared with NumPy and the machine's peak.

Kernels run separately, on one worker and on all, with the same operands in every run.
NumPy's BLAS has one thread, so that the first two columns compare. Runs of both alternate, and the
fastest of each counts.

    python benchmarks/contraction.py [--rounds N] [part of a name ...]
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.table import Table

from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.kernels.rules import LAYOUT_RULES, RULES
from shardir.backends.cpu.threads.roofline import roofline
from shardir.backends.cpu.threads.workers import worker_count, workers
from shardir.ir.builder import Builder
from shardir.ir.module import Op
from shardir.ir.types import TensorType
from shardir.ops import convolution, dot

ROUND_SECONDS = 0.05


@dataclass(frozen=True)
class Case:
    """One row: an operation, its operands' shapes, and the same in NumPy if it has that."""

    name: str
    dims: str
    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    numpy: Callable[[Any, Any], Any] | None = np.matmul
    dtype: str = "f32"
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def op(self) -> Op:
        """The operation on parameters."""
        b = Builder()
        types = [TensorType(shape, self.dtype) for shape in (self.lhs, self.rhs)]
        spec = convolution if self.attrs else dot
        b.emit(spec, *map(b.param, types), dims=self.dims, **self.attrs)
        return b.ops[0]

    @property
    def flops(self) -> float:
        """Products and sums."""
        left, right = self.dims.partition("->")[0].split(",")
        sizes = dict(zip(left, self.lhs, strict=True)) | dict(zip(right, self.rhs, strict=True))
        if self.attrs:
            inside = prod(sizes[c] for c in right if c != "o")
            dilations: tuple[int, ...] = self.attrs["lhs_dilation"]
            return 2.0 * self.op.result.type.size * inside / prod(dilations)
        return 2.0 * prod(sizes.values())


def image(name: str, dims: str, lhs: tuple[int, ...], rhs: tuple[int, ...], **given: Any) -> Case:
    attrs = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "lhs_dilation": (1, 1),
             "rhs_dilation": (1, 1), **given}  # fmt: skip
    return Case(name, dims, lhs, rhs, None, attrs=attrs)


NONE = ((0, 0), (0, 0))
"""No padding."""


def square(size: int, dtype: str = "f32") -> Case:
    fast = dtype in ("f32", "f64", "c64", "c128")
    shape = (size, size)
    return Case(f"{size}³ {dtype}", "mk,kn->mn", shape, shape, np.matmul if fast else None, dtype)


CASES = [
    *map(square, (2048, 1024, 512, 256, 128, 64, 32, 8)),
    *(square(512, dtype) for dtype in ("f64", "bf16", "f16", "c64", "c128", "i32", "i8")),
    Case("512x1024x1024, right transposed", "mk,nk->mn", (512, 1024), (1024, 1024),
         lambda a, b: a @ b.T),
    Case("784x1024x128, left transposed", "km,kn->mn", (128, 784), (128, 1024),
         lambda a, b: a.T @ b),
    Case("256 by 256 over 10000", "km,kn->mn", (10_000, 256), (10_000, 256),
         lambda a, b: a.T @ b),
    Case("2000x1000 by 140 columns", "mk,kn->mn", (2000, 1000), (1000, 140)),
    Case("1024² by 10 columns", "mk,kn->mn", (1024, 1024), (1024, 10)),
    Case("8 rows by 1024²", "mk,kn->mn", (8, 1024), (1024, 1024)),
    Case("4 rows by 4096²", "mk,kn->mn", (4, 4096), (4096, 4096)),
    Case("2048² by vector", "mk,k->m", (2048, 2048), (2048,)),
    Case("vector by 2048²", "k,kn->n", (2048,), (2048, 2048)),
    Case("dot product of 10M", "i,i->", (10_000_000,), (10_000_000,), np.dot),
    Case("outer product 2048", "i,j->ij", (2048,), (2048,), np.outer),
    Case("3 by 3 over 1M", "km,kn->mn", (1_000_000, 3), (1_000_000, 3), lambda a, b: a.T @ b),
    Case("8 of 512²", "zmk,zkn->zmn", (8, 512, 512), (8, 512, 512)),
    Case("64 heads, scores", "zmk,znk->zmn", (64, 256, 64), (64, 256, 64),
         lambda a, b: a @ b.swapaxes(1, 2)),
    Case("64 heads, values", "zmk,zkn->zmn", (64, 256, 256), (64, 256, 64)),
    *(Case(f"{count} of {size}x{size}", "zmk,zkn->zmn", (count, size, size), (count, size, size))
      for count, size in ((4000, 4), (4000, 8), (1000, 16), (256, 32))),
    image("convolution 3x3, 32 to 64", "b01f,01io->b01f", (64, 32, 32, 32), (3, 3, 32, 64)),
    image("14², 24 features", "b01f,01io->b01f", (16, 14, 14, 24), (3, 3, 24, 24)),
    image("14², 256 features", "b01f,01io->b01f", (2, 14, 14, 256), (3, 3, 256, 256)),
    image("28², 128 features, operand", "b01f,01oi->b01f", (1, 28, 28, 128), (3, 3, 128, 128)),
    image("56², 64 features, stride 2", "b01f,01io->b01f", (1, 56, 56, 64), (3, 3, 64, 128),
          strides=(2, 2)),
    image("30², 64 features, no padding", "b01f,01io->b01f", (4, 30, 30, 64), (3, 3, 64, 64),
          padding=NONE),
    image("1x1, 64 features, stride 2", "b01f,01io->b01f", (4, 56, 56, 64), (1, 1, 64, 128),
          strides=(2, 2), padding=NONE),
    image("pieces of 16x16, 3 features", "b01f,01io->b01f", (4, 224, 224, 3), (16, 16, 3, 192),
          strides=(16, 16), padding=NONE),
    image("of 3 features", "b01f,01io->b01f", (64, 32, 32, 3), (3, 3, 3, 32)),
    image("224², 3 features", "b01f,01io->b01f", (1, 224, 224, 3), (3, 3, 3, 64)),
    image("7x7, 3 features, stride 2", "b01f,01io->b01f", (4, 224, 224, 3), (7, 7, 3, 64),
          strides=(2, 2), padding=((3, 3), (3, 3))),
    image("5x5, 1 feature", "b01f,01io->b01f", (16, 28, 28, 1), (5, 5, 1, 32),
          padding=((2, 2), (2, 2))),
    image("features first", "bf01,oi01->bf01", (64, 32, 32, 32), (64, 32, 3, 3)),
    image("features first, operand", "bf01,io01->bf01", (4, 64, 32, 32), (64, 32, 3, 3)),
    image("features first, 56²", "bf01,oi01->bf01", (1, 64, 56, 56), (64, 64, 3, 3)),
    image("features first, 28²", "bf01,oi01->bf01", (1, 128, 28, 28), (128, 128, 3, 3)),
    image("features first, 14²", "bf01,oi01->bf01", (2, 256, 14, 14), (256, 256, 3, 3)),
    image("features first, no padding", "bf01,oi01->bf01", (4, 64, 30, 30), (64, 64, 3, 3),
          padding=NONE),
    image("features first, stride 2", "bf01,oi01->bf01", (1, 64, 56, 56), (128, 64, 3, 3),
          strides=(2, 2)),
    image("3 features, first", "bf01,oi01->bf01", (16, 3, 32, 32), (32, 3, 3, 3)),
    image("7x7, 3 features, first", "bf01,oi01->bf01", (1, 3, 224, 224), (64, 3, 7, 7),
          strides=(2, 2), padding=((3, 3), (3, 3))),
    image("gradient of operand", "b01f,01oi->b01f", (64, 32, 32, 64), (3, 3, 32, 64)),
    image("gradient of filter", "f01b,i01o->01bf", (64, 32, 32, 32), (64, 32, 32, 64)),
    image("of filter, 14², 24 features", "f01b,i01o->01bf", (16, 14, 14, 24), (16, 14, 14, 24)),
    image("of filter, 14², 256 features", "f01b,i01o->01bf", (2, 14, 14, 256), (2, 14, 14, 256)),
    image("of filter, stride 2", "f01b,i01o->01bf", (1, 56, 56, 64), (1, 28, 28, 128),
          rhs_dilation=(2, 2), padding=((1, 0), (1, 0))),
    image("of filter, 3 features", "f01b,i01o->01bf", (16, 32, 32, 3), (16, 32, 32, 32)),
    image("of filter, features first", "fb01,io01->bf01", (1, 128, 28, 28), (1, 128, 28, 28)),
    image("set apart", "b01f,01oi->b01f", (64, 16, 16, 64), (3, 3, 32, 64),
          lhs_dilation=(2, 2), padding=((2, 1), (2, 1))),
    image("of filter, 14², features first", "fb01,io01->bf01", (16, 24, 14, 14), (16, 24, 14, 14)),
    image("of filter, 5x5, 1 feature", "f01b,i01o->01bf", (16, 28, 28, 1), (16, 28, 28, 32),
          padding=((2, 2), (2, 2))),
    image("to 1 feature", "b01f,01io->b01f", (4, 32, 32, 32), (3, 3, 32, 1)),
    image("to 3 features", "b01f,01io->b01f", (4, 32, 32, 64), (3, 3, 64, 3)),
    image("each feature alone", "b01f,01io->b01f", (64, 32, 32, 64), (3, 3, 1, 64), groups=64),
    image("each feature alone, features first", "bf01,oi01->bf01", (8, 64, 32, 32), (64, 1, 3, 3),
          groups=64),
    image("two of each feature", "b01f,01io->b01f", (8, 32, 32, 32), (3, 3, 1, 64), groups=32),
    image("signal, 1001 taps", "bf0,oi0->bf0", (1, 1, 100_000), (1, 1, 1001), strides=(1,),
          padding=((500, 500),), lhs_dilation=(1,), rhs_dilation=(1,)),
]  # fmt: skip


class Bench:
    """A program of one operation; also the context that its rule sees."""

    def __init__(self, case: Case) -> None:
        self.workers, self.machine = worker_count(), host_machine()
        op = case.op
        rng = np.random.default_rng(0)
        self.arrays = [aligned(v.type.nbytes, v.type) for v in op.operands]
        for array in self.arrays:
            array[...] = (4 * rng.standard_normal(array.shape)).astype(array.dtype)
        self.buffers = list(self.arrays)
        views = [
            BufferView(i, 0, v.type.shape, row_major_strides(v.type), v.type.dtype)
            for i, v in enumerate(op.operands, 1)
        ]
        type = op.result.type
        strides = row_major_strides(type, LAYOUT_RULES[op.name](op, views))
        result = BufferView(self.temporary(type.nbytes), 0, type.shape, strides, type.dtype)
        self.phases = RULES[op.name](op, views, [result], self) or []
        run = load_program(self.phases, len(self.buffers) + 1)
        addresses = [buffer.ctypes.data for buffer in self.buffers]
        self.run = lambda: run(*addresses)

    def temporary(self, nbytes: int) -> int:
        self.buffers.append(aligned(nbytes, TensorType((nbytes,), "u8")))
        return len(self.buffers)


def aligned(nbytes: int, type: TensorType) -> Any:
    """An array that begins a cache line."""
    whole = np.zeros(nbytes + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + nbytes].view(type.numpy).reshape(type.shape)


def fastest(runs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the seconds of each; they alternate."""
    best = [float("inf")] * len(runs)
    for run in runs:
        run()
    for _ in range(rounds):
        for i, run in enumerate(runs):
            end = time.perf_counter() + ROUND_SECONDS
            while (start := time.perf_counter()) < end:
                run()
                best[i] = min(best[i], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("names", nargs="*", help="only rows with one of these in their name")
    given = parser.parse_args()
    peak = roofline().flops / worker_count()
    table = Table(title=f"GF/s; one worker can do {peak / 1e9:.0f} of f32")
    columns = ("1 worker", "NumPy", f"{worker_count()} workers", "1 worker", "peak", "tasks")
    for column in ("", *columns):
        table.add_column(column, justify="right" if column else "left")
    for case in CASES:
        if given.names and not any(name in case.name for name in given.names):
            continue
        with workers(1):
            alone = Bench(case)
            runs: list[Callable[[], object]] = [alone.run]
            if case.numpy:
                runs.append(partial(case.numpy, *alone.arrays))
            ours, *theirs = fastest(runs, given.rounds)
        shared = Bench(case)
        (together,) = fastest([shared.run], given.rounds)
        speeds = [f"{case.flops / s / 1e9:.1f}" for s in (ours, *theirs)] + ["-"][len(theirs) :]
        table.add_row(
            case.name,
            *speeds,
            f"{case.flops / together / 1e9:.1f}",
            f"{ours * 1e6:.1f} us",
            f"{case.flops / ours / peak:.0%}" if case.dtype == "f32" else "-",
            " + ".join(str(phase.tasks) for phase in shared.phases),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
