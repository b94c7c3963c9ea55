"""Prefetches of tiles: they cover the data that is packed next, and little else."""

from collections.abc import Callable

import numpy as np
import pytest

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.kernel_api import Kernel, Phase
from shardir.backends.cpu.kernels.gemm.prefetch_stream import PrefetchStream

STEPS, STEPS_PER_PREFETCH, CACHE_LINE_BYTES = 512, 16, 64
"""The steps of a tile, the steps between prefetches, and the bytes of a cache line."""


def prefetched_lines(
    name: str, tiles: int, emit_stream: Callable[[LLVMFunction, PrefetchStream], None]
) -> list[int]:
    """Return the cache lines that tiles prefetch, in order."""

    def text(machine: HostDescription) -> str:
        module = LLVMModule(machine)
        f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
        null = LLVMValue("null", "ptr", f)
        stream = PrefetchStream(f, null)
        emit_stream(f, stream)
        out = f.load(f.offset(f.params[0], 8), "ptr")
        for tile in range(tiles):
            start, pace, each = stream.arguments_of_tile(f.value(tile, "i64"))
            for i, value in enumerate((start.to("i64", "ptrtoint"), pace, each)):
                f.store(value, f.offset(out, 3 * tile + i, "i64"))
        f.ret()
        return module.text()

    numbers = np.zeros((tiles, 3), np.int64)
    load_program([Phase(Kernel(name, text), (0,), 1, 0.0)], 2)(numbers.ctypes.data)
    return [
        (start + first * each + k * pace) // CACHE_LINE_BYTES
        for start, pace, each in numbers.tolist()
        for first in range(0, STEPS, STEPS_PER_PREFETCH)
        for k in range(STEPS_PER_PREFETCH)
    ]


def lines_of_strided_operand(name: str, tiles: int, step: int, line: int) -> list[int]:
    def emit_stream(f: LLVMFunction, stream: PrefetchStream) -> None:
        base = LLVMValue("inttoptr (i64 1048576 to ptr)", "ptr", f)
        stream.follow_operand(base, f.value(step, "i64"), f.value(line, "i64"), 4, 4)

    return prefetched_lines(name, tiles, emit_stream)


@pytest.mark.parametrize("pitch", [2048, 3136, 4096])
def test_columns_with_contiguous_steps_are_prefetched_once(pitch: int) -> None:
    """Two tiles prefetch 32 columns, each cache line once."""
    got = lines_of_strided_operand(f"prefetch_rows_{pitch}", 2, 4, pitch)
    begin = 1048576
    want = {
        (begin + j * pitch + 4 * k) // CACHE_LINE_BYTES
        for j in range(32)
        for k in range(0, STEPS, STEPS_PER_PREFETCH)
    }
    assert set(got) == want
    assert len(got) == len(want) == 1024


@pytest.mark.parametrize("pitch", [128, 2048, 4096])
def test_contiguous_columns_are_prefetched_once(pitch: int) -> None:
    """Two tiles prefetch 32 columns in each step, each cache line once."""
    got = lines_of_strided_operand(f"prefetch_columns_{pitch}", 2, pitch, 4)
    begin = 1048576
    want = {(begin + k * pitch) // CACHE_LINE_BYTES + i for k in range(STEPS) for i in range(2)}
    assert set(got) == want
    assert len(got) == len(want) == 1024


def test_packed_columns_are_prefetched_in_order() -> None:
    def emit_stream(f: LLVMFunction, stream: PrefetchStream) -> None:
        stream.follow_packed(
            LLVMValue("inttoptr (i64 1048576 to ptr)", "ptr", f), f.value(STEPS, "i64")
        )

    first = 1048576 // CACHE_LINE_BYTES
    assert prefetched_lines("prefetch_packed", 2, emit_stream) == list(range(first, first + 1024))
