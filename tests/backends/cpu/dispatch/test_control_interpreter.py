"""Loops and branches in one native call: addresses of rows, swaps, jumps, signals, threads."""

import time
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.dispatch.control_interpreter import (
    MIN_ITERATION_NANOSECONDS,
    Instruction,
    Opcode,
    make_control_function,
)
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.threads.workers import worker_pool
from tests.backends.cpu.sample_kernels import make_kernel
from tests.process_control.signals import Interrupted, alarm, assert_another_thread_ends


def _step(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """word[slot 2] = 3 * word[slot 1] + word[slot 3]; then word[slot 3] is doubled."""
    read, write, row = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2, 3))
    row_value = f.load(row, "i64")
    f.store(f.load(read, "i64") * 3 + row_value, write)
    f.store(row_value * 2, row)


def _is_smaller(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """byte[slot 4] = word[slot 1] < word[slot 3]."""
    read, row, to = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 3, 4))
    smaller = f.load(read, "i64").is_("slt", f.load(row, "i64"))
    f.store(smaller.to("i8", "zext"), to)


STEP = load_program([Phase(make_kernel("looping_step", _step), (), 1, 10.0)], 5)
IS_SMALLER = load_program([Phase(make_kernel("looping_smaller", _is_smaller), (), 1, 10.0)], 5)
CODE = worker_pool().code


def program_address(run: Any) -> int:
    """Return the address of the program that a function runs."""
    address: int = run.__self__
    return address


STEP_PROGRAM, IS_SMALLER_PROGRAM = program_address(STEP), program_address(IS_SMALLER)


def scan(length: int, step: int, first: int = 0) -> list[Instruction]:
    """Return iterations that set slot 3 to the next row of slot 4 and swap slots 1 and 2."""
    return [
        (Opcode.SET, 0, length, 0),
        (Opcode.LOAD_ADDRESS, 1, 4, first),
        (Opcode.DECREMENT_OR_JUMP, 0, 7, 0),
        (Opcode.STORE_AND_ADVANCE, 3, 1, step),
        (Opcode.RUN, STEP_PROGRAM, 0, 0),
        (Opcode.SWAP, 1, 2, 0),
        (Opcode.LOOP, 2, MIN_ITERATION_NANOSECONDS, 0),
    ]


def run_instructions(
    instructions: list[Instruction], *addresses: int, entry: str = "entry"
) -> None:
    make_control_function(CODE[entry], instructions, 2, 5, (STEP, IS_SMALLER))(*addresses)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_scans_advance_rows_and_swap_addresses(length: int, backwards: bool) -> None:
    words, rows = np.array([5, 0]), np.arange(1, 21)
    first = 8 + 16 * (length - 1) if backwards else 8
    instructions = scan(length, -16 if backwards else 16, first)
    run_instructions(instructions, words.ctypes.data, words.ctypes.data + 8, 0, rows.ctypes.data)
    carried, after = 5, np.arange(1, 21)
    for i in range(length)[::-1] if backwards else range(length):
        carried = carried * 3 + int(after[1 + 2 * i])
        after[1 + 2 * i] *= 2
    assert words[length % 2] == carried
    assert np.array_equal(rows, after)


@pytest.mark.parametrize("limit", [-1, 5, 1000])
def test_while_loops_run_until_the_condition_is_false(limit: int) -> None:
    """The final address table shows which of the two addresses was read last."""
    words, bound, condition = np.array([0, 0]), np.array([limit]), np.array([7], np.uint8)
    addresses = np.array(
        [0, *(each.ctypes.data for each in (words, words[1:], bound, condition))], np.int64
    )
    add = make_kernel("looping_add", _add)
    step = load_program([Phase(add, (), 1, 10.0)], 5)
    program: int = program_address(step)
    instructions: list[Instruction] = [
        (Opcode.RUN, IS_SMALLER_PROGRAM, 0, 0),
        (Opcode.JUMP_IF_ZERO, 4, 0, 5),
        (Opcode.RUN, program, 0, 0),
        (Opcode.SWAP, 1, 2, 0),
        (Opcode.LOOP, 0, MIN_ITERATION_NANOSECONDS, 0),
    ]
    run = make_control_function(CODE["loop"], instructions, 0, 5, (step, IS_SMALLER))
    run(addresses.ctypes.data)
    value, rounds = 0, 0
    while value < limit:
        value, rounds = 2 * value + 1, rounds + 1
    assert condition[0] == 0
    assert addresses[1] == words.ctypes.data + 8 * (rounds % 2)
    assert words[rounds % 2] == value


def _add(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """word[slot 2] = 2 * word[slot 1] + 1."""
    read, write = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2))
    f.store(f.load(read, "i64") * 2 + 1, write)


@pytest.mark.parametrize(("index", "chosen"), [(0, 0), (1, 1), (2, 2), (3, 2), (-1, 2), (-9, 2)])
def test_out_of_bounds_branch_indices_select_the_last_branch(index: int, chosen: int) -> None:
    index_pair = np.array([0, index], np.int32)
    instructions: list[Instruction] = [
        (Opcode.JUMP_BY_INDEX, 1, 4, 2),
        (Opcode.JUMP, 4, 0, 0),
        (Opcode.JUMP, 6, 0, 0),
        (Opcode.JUMP, 8, 0, 0),
        (Opcode.SWAP, 2, 3, 0),
        (Opcode.JUMP, 9, 0, 0),
        (Opcode.SWAP, 2, 4, 0),
        (Opcode.JUMP, 9, 0, 0),
        (Opcode.SWAP, 3, 4, 0),
    ]
    addresses = np.array([0, index_pair.ctypes.data, 22, 33, 44], np.int64)
    run_instructions(instructions, addresses.ctypes.data, entry="loop")
    assert addresses[2:].tolist() == [[33, 22, 44], [44, 33, 22], [22, 44, 33]][chosen]


def test_wrong_argument_counts_and_types_are_rejected() -> None:
    run = make_control_function(CODE["entry"], scan(3, 0), 2, 5, STEP)
    with pytest.raises(TypeError, match="one address for each slot except slot 0"):
        run(1, 2)
    with pytest.raises(TypeError):
        run(1, 2, 3, "text")
    inside = make_control_function(CODE["loop"], scan(3, 0), 2, 5, STEP)
    with pytest.raises(TypeError, match="one address"):
        inside(1, 2)
    with pytest.raises(TypeError):
        inside("text")


def long_loop() -> None:
    words, row = np.zeros(2, np.int64), np.zeros(1, np.int64)
    run_instructions(scan(1 << 40, 0), words.ctypes.data, words.ctypes.data + 8, 0, row.ctypes.data)


def test_a_signal_interrupts_a_long_loop() -> None:
    with pytest.raises(Interrupted), alarm(0.05):
        long_loop()


def test_other_threads_run_during_a_long_loop() -> None:
    # The other thread needs the GIL to continue after its sleep.
    assert_another_thread_ends(long_loop, lambda: time.sleep(0.02))
