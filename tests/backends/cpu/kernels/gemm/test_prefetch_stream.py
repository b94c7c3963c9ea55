"""What tiles ask for while they are made: all of what is packed next, and little else."""

from collections.abc import Callable

import numpy as np
import pytest

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.kernel_api import Kernel, Phase
from shardir.backends.cpu.kernels.gemm.prefetch_stream import PrefetchStream

STEPS, SHARE, LINE = 512, 16, 64
"""Steps of a tile, of a share of them, and bytes of a line of memory."""


def asked(
    name: str, tiles: int, found: Callable[[LLVMFunction, PrefetchStream], None]
) -> list[int]:
    """The lines of memory that tiles ask for, one after the other."""

    def text() -> str:
        module = LLVMModule()
        f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
        nowhere = LLVMValue("null", "ptr", f)
        soon = PrefetchStream(f, nowhere)
        found(f, soon)
        out = f.load(f.offset(f.params[0], 8), "ptr")
        for tile in range(tiles):
            start, pace, each = soon.arguments_of_tile(f.value(tile, "i64"))
            for i, value in enumerate((start.to("i64", "ptrtoint"), pace, each)):
                f.store(value, f.offset(out, 3 * tile + i, "i64"))
        f.ret()
        return module.text()

    numbers = np.zeros((tiles, 3), np.int64)
    load_program([Phase(Kernel(name, text), (0,), 1, 0.0)], 2)(numbers.ctypes.data)
    return [
        (start + first * each + k * pace) // LINE
        for start, pace, each in numbers.tolist()
        for first in range(0, STEPS, SHARE)
        for k in range(SHARE)
    ]


def lying(name: str, tiles: int, step: int, line: int) -> list[int]:
    def found(f: LLVMFunction, soon: PrefetchStream) -> None:
        base = LLVMValue("inttoptr (i64 1048576 to ptr)", "ptr", f)
        soon.follow_operand(base, f.value(step, "i64"), f.value(line, "i64"), 4, 4)

    return asked(name, tiles, found)


@pytest.mark.parametrize("pitch", [2048, 3136, 4096])
def test_columns_whose_steps_are_neighbours(pitch: int) -> None:
    """Two tiles ask for 32 columns, each line of memory once."""
    got = lying(f"soon_along_{pitch}", 2, 4, pitch)
    begin = 1048576
    want = {(begin + j * pitch + 4 * k) // LINE for j in range(32) for k in range(0, STEPS, SHARE)}
    assert set(got) == want
    assert len(got) == len(want) == 1024


@pytest.mark.parametrize("pitch", [128, 2048, 4096])
def test_columns_that_are_neighbours(pitch: int) -> None:
    """Two tiles ask for 32 columns in each step, each line of memory once."""
    got = lying(f"soon_across_{pitch}", 2, pitch, 4)
    begin = 1048576
    want = {(begin + k * pitch) // LINE + i for k in range(STEPS) for i in range(2)}
    assert set(got) == want
    assert len(got) == len(want) == 1024


def test_packed_columns() -> None:
    def found(f: LLVMFunction, soon: PrefetchStream) -> None:
        soon.follow_packed(
            LLVMValue("inttoptr (i64 1048576 to ptr)", "ptr", f), f.value(STEPS, "i64")
        )

    first = 1048576 // LINE
    assert asked("soon_packed", 2, found) == list(range(first, first + 1024))
