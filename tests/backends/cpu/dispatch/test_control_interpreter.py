"""Loops and branches in one call: rows, places that are changed, jumps, signals, threads."""

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
from tests.backends.cpu.sample_kernels import kernel
from tests.process_control.signals import Interrupted, alarm, assert_another_thread_ends


def _step(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """The word in slot 2 becomes that in slot 1 times 3, plus that in slot 3, which is doubled."""
    read, write, row = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2, 3))
    shown = f.load(row, "i64")
    f.store(f.load(read, "i64") * 3 + shown, write)
    f.store(shown * 2, row)


def _smaller(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """The byte in slot 4 says whether the word in slot 1 is smaller than that in slot 3."""
    read, row, to = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 3, 4))
    smaller = f.load(read, "i64").is_("slt", f.load(row, "i64"))
    f.store(smaller.to("i8", "zext"), to)


STEP = load_program([Phase(kernel("looping_step", _step), (), 1, 10.0)], 5)
SMALLER = load_program([Phase(kernel("looping_smaller", _smaller), (), 1, 10.0)], 5)
CODE = worker_pool().code


def program_of(run: Any) -> int:
    """The address of the program that a function runs."""
    address: int = run.__self__
    return address


ROUND, ASK = program_of(STEP), program_of(SMALLER)


def scan(length: int, step: int, first: int = 0) -> list[Instruction]:
    """Rounds in which slot 3 shows words from slot 4, and slots 1 and 2 change places."""
    return [
        (Opcode.SET, 0, length, 0),
        (Opcode.LOAD_ADDRESS, 1, 4, first),
        (Opcode.DECREMENT_OR_JUMP, 0, 7, 0),
        (Opcode.STORE_AND_ADVANCE, 3, 1, step),
        (Opcode.RUN, ROUND, 0, 0),
        (Opcode.SWAP, 1, 2, 0),
        (Opcode.LOOP, 2, MIN_ITERATION_NANOSECONDS, 0),
    ]


def follow(instructions: list[Instruction], *addresses: int, entry: str = "entry") -> None:
    make_control_function(CODE[entry], instructions, 2, 5, (STEP, SMALLER))(*addresses)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_rows_move_on_and_places_are_changed(length: int, backwards: bool) -> None:
    words, rows = np.array([5, 0]), np.arange(1, 21)
    first = 8 + 16 * (length - 1) if backwards else 8
    instructions = scan(length, -16 if backwards else 16, first)
    follow(instructions, words.ctypes.data, words.ctypes.data + 8, 0, rows.ctypes.data)
    carried, after = 5, np.arange(1, 21)
    for i in range(length)[::-1] if backwards else range(length):
        carried = carried * 3 + int(after[1 + 2 * i])
        after[1 + 2 * i] *= 2
    assert words[length % 2] == carried
    assert np.array_equal(rows, after)


@pytest.mark.parametrize("limit", [-1, 5, 1000])
def test_rounds_go_on_as_long_as_memory_says(limit: int) -> None:
    """What is left of the addresses says which of two places was read last."""
    words, bound, going = np.array([0, 0]), np.array([limit]), np.array([7], np.uint8)
    addresses = np.array(
        [0, *(each.ctypes.data for each in (words, words[1:], bound, going))], np.int64
    )
    add = kernel("looping_add", _add)
    step = load_program([Phase(add, (), 1, 10.0)], 5)
    program: int = program_of(step)
    instructions: list[Instruction] = [
        (Opcode.RUN, ASK, 0, 0),
        (Opcode.JUMP_IF_ZERO, 4, 0, 5),
        (Opcode.RUN, program, 0, 0),
        (Opcode.SWAP, 1, 2, 0),
        (Opcode.LOOP, 0, MIN_ITERATION_NANOSECONDS, 0),
    ]
    run = make_control_function(CODE["loop"], instructions, 0, 5, (step, SMALLER))
    run(addresses.ctypes.data)
    number, rounds = 0, 0
    while number < limit:
        number, rounds = 2 * number + 1, rounds + 1
    assert going[0] == 0
    assert addresses[1] == words.ctypes.data + 8 * (rounds % 2)
    assert words[rounds % 2] == number


def _add(
    f: LLVMFunction, bases: LLVMValue, record: LLVMValue, task: LLVMValue, worker: LLVMValue
) -> None:
    """The word in slot 2 becomes twice that in slot 1, plus 1."""
    read, write = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2))
    f.store(f.load(read, "i64") * 2 + 1, write)


@pytest.mark.parametrize(("index", "chosen"), [(0, 0), (1, 1), (2, 2), (3, 2), (-1, 2), (-9, 2)])
def test_what_is_out_of_bounds_chooses_the_last(index: int, chosen: int) -> None:
    given = np.array([0, index], np.int32)
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
    addresses = np.array([0, given.ctypes.data, 22, 33, 44], np.int64)
    follow(instructions, addresses.ctypes.data, entry="loop")
    assert addresses[2:].tolist() == [[33, 22, 44], [44, 33, 22], [22, 44, 33]][chosen]


def test_slots_are_counted_and_addresses_are_numbers() -> None:
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
    follow(scan(1 << 40, 0), words.ctypes.data, words.ctypes.data + 8, 0, row.ctypes.data)


def test_a_signal_ends_a_long_loop() -> None:
    with pytest.raises(Interrupted), alarm(0.05):
        long_loop()


def test_other_threads_get_their_turn() -> None:
    # To go on after it slept, the other thread needs what the loop holds.
    assert_another_thread_ends(long_loop, lambda: time.sleep(0.02))
