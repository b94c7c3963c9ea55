"""An interpreter of loops and branches around phase tables, in one native call.

    run = make_control_function(entry, instructions, registers, slots, keep)
    run(*addresses)          # of slots 1, 2, ..., slots - 1, like the result of `load_program`

A program with control flow is a list of instructions: an opcode and three integers each. They run
phase tables, move addresses between slots, and jump by values that the phases left in memory. Loop
counters and row pointers are in registers. A loop of short iterations holds the GIL, and yields it
every 10 ms, when Python's signal handlers run too.
"""

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch.entry_point import make_builtin_function
from shardir.backends.cpu.dispatch.python_api import python_object, raise_wrong_count
from shardir.backends.cpu.threads import shared_memory_layout as at
from shardir.backends.cpu.threads.parking import emit_sleep

Instruction = tuple[int, int, int, int]
"""An opcode and its three integers."""


class Opcode(IntEnum):
    """Opcodes; the integers of an instruction are named in order."""

    RUN = 0
    """Run the phases of the program at an address: (program)."""
    JUMP = 1
    """Jump to an instruction: (to)."""
    LOOP = 2
    """Jump to the next iteration of a loop, of an estimated duration: (to, nanoseconds)."""
    JUMP_IF_ZERO = 3
    """Jump if the byte at slot and offset is 0: (slot, offset, to)."""
    DECREMENT_OR_JUMP = 4
    """Decrement a register, or jump if it is 0: (register, to)."""
    SWAP = 5
    """Swap the addresses of two slots: (slot, slot)."""
    LOAD_ADDRESS = 6
    """Set a register to the address of a slot plus an offset: (register, slot, bytes)."""
    SET = 7
    """Set a register to an integer: (register, value)."""
    STORE_AND_ADVANCE = 8
    """Set a slot to a register, and advance the register: (slot, register, bytes)."""
    JUMP_BY_INDEX = 9
    """Skip as many instructions as the i32 at slot and offset says: (slot, offset, last).
    A value below 0 or above `last` counts as `last`."""


INSTRUCTION_BYTES = 32
GIL_YIELD_INTERVAL_NANOSECONDS = 10_000_000
"""Nanoseconds after which a loop yields the GIL."""
GIL_YIELD_MICROSECONDS = 50
"""Microseconds for which the GIL is released, so that another thread wakes: a thread that waits for
the GIL misses a shorter release, and requests it only after 5 ms without one."""
CLOCK_CHECK_INTERVAL_NANOSECONDS = 1 << 20
"""Nanoseconds of estimated iterations between two reads of the clock."""
MIN_ITERATION_NANOSECONDS = CLOCK_CHECK_INTERVAL_NANOSECONDS >> 6
"""The least estimated duration of an iteration, in case estimates are too low."""


def make_control_function(
    entry: int, instructions: Sequence[Instruction], registers: int, slots: int, keep: object
) -> Callable[..., None]:
    """Return a function that runs instructions.

    `entry` is the address of the native function `entry` or `loop`; `keep` lives as long as the
    result.
    """
    words = [word for each in instructions for word in each]
    memory = (ctypes.c_int64 * (at.PROGRAM_BYTES // 8 + len(words)))()
    address = ctypes.addressof(memory)
    table = address + at.PROGRAM_BYTES
    header = (0, table, len(instructions), slots, at.FLAG_INSTRUCTIONS, registers, 0, 0)
    memory[:] = [*header, *words]
    result: Callable[..., None] = make_builtin_function(entry, address, (memory, keep))
    return result


def define_control_interpreter(module: LLVMModule) -> None:
    """Define `drive`, which `run` of the same module calls, and `loop`.

    Python calls `loop` with the address of the table of slot addresses, which it updates.
    """
    f = LLVMFunction(module, "loop", ["ptr", "ptr", "i64"], "ptr")
    self, args, count = f.params
    program = f.call("PyLong_AsVoidPtr", [self], "ptr")
    answer = f.variable("ptr", 0)

    def refuse() -> None:
        raise_wrong_count(f)

    def go() -> None:
        bases = f.call("PyLong_AsVoidPtr", [f.load(args, "ptr")], "ptr")
        with f.when(bases.is_("ne", 0)), f.when(f.call("run", [program, bases], "i1")):
            none = python_object(f, "none")
            f.call("Py_IncRef", [none])
            answer.set(none)

    f.if_else(count.is_("eq", 1), go, refuse)
    f.ret(answer.get())
    _define_yield_gil(module)
    _InterpreterFunction(module)


def _define_yield_gil(module: LLVMModule) -> None:
    """Define `patience(since) -> i1`: yield the GIL if it is time; false if a signal handler
    raised."""
    f = LLVMFunction(module, "patience", ["ptr"], "i1", "nounwind noinline", internal=True)
    (since,) = f.params
    good = f.variable("i1", 1)
    now = f.call("now", [], "i64")
    with f.when((now - f.load(since, "i64")).is_("sgt", GIL_YIELD_INTERVAL_NANOSECONDS)):
        thread = f.call("PyEval_SaveThread", [], "ptr")
        emit_sleep(f, GIL_YIELD_MICROSECONDS)
        f.call("PyEval_RestoreThread", [thread])
        good.set(f.call("PyErr_CheckSignals", [], "i32").is_("eq", 0))
        f.store(f.call("now", [], "i64"), since)
    f.ret(good.get())


class _InterpreterFunction:
    """Define `drive(program, bases) -> i1`: run instructions; false if a signal handler raised."""

    def __init__(self, module: LLVMModule) -> None:
        f = self.f = LLVMFunction(module, "drive", ["ptr", "ptr"], "i1", "nounwind", internal=True)
        program, self.bases = f.params
        table = f.load(f.offset(program, at.PROGRAM_TABLE), "ptr")
        end = f.load(f.offset(program, at.PROGRAM_ENTRIES), "i64")
        count = f.load(f.offset(program, at.PROGRAM_REGISTERS), "i64")
        self.registers = f.emit(f"alloca i64, i64 {count + 1}, align 64", "ptr")
        self.next, self.good = f.variable("i64", 0), f.variable("i1", 1)
        self.left, self.since = (
            f.variable("i64", CLOCK_CHECK_INTERVAL_NANOSECONDS),
            f.variable("i64"),
        )
        self.since.set(f.call("now", [], "i64"))
        with f.while_(lambda: self.next.get().is_("ult", end) & self.good.get()):
            at_ = f.offset(table, self.next.get() * INSTRUCTION_BYTES)
            code, *numbers = (f.load(f.offset(at_, 8 * k), "i64") for k in range(4))
            self.next.set(self.next.get() + 1)
            self._dispatch(code, numbers, tuple(Opcode))
        f.ret(self.good.get())

    def _dispatch(
        self, code: LLVMValue, numbers: Sequence[LLVMValue], among: Sequence[Opcode]
    ) -> None:
        """Select the instruction of an opcode by binary search."""
        if len(among) == 1:
            getattr(self, f"_{among[0].name.lower()}")(*numbers)
            return
        half = len(among) // 2
        self.f.if_else(
            code.is_("slt", among[half]),
            lambda: self._dispatch(code, numbers, among[:half]),
            lambda: self._dispatch(code, numbers, among[half:]),
        )

    def _slot(self, slot: LLVMValue) -> LLVMValue:
        return self.f.offset(self.bases, slot, "i64")

    def _register(self, register: LLVMValue) -> LLVMValue:
        return self.f.offset(self.registers, register, "i64")

    def _place(self, slot: LLVMValue, offset: LLVMValue) -> LLVMValue:
        return self.f.offset(self.f.load(self._slot(slot), "ptr"), offset)

    def _run(self, program: LLVMValue, *_: LLVMValue) -> None:
        address = program.to("ptr", "inttoptr")
        self.good.set(self.f.call("run_phases", [address, self.bases], "i1"))

    def _jump(self, to: LLVMValue, *_: LLVMValue) -> None:
        self.next.set(to)

    def _loop(self, to: LLVMValue, weight: LLVMValue, *_: LLVMValue) -> None:
        self.next.set(to)
        self.left.set(self.left.get() - weight)
        with self.f.when(self.left.get().is_("sle", 0)):
            self.left.set(CLOCK_CHECK_INTERVAL_NANOSECONDS)
            self.good.set(self.f.call("patience", [self.since.address], "i1"))

    def _jump_if_zero(self, slot: LLVMValue, offset: LLVMValue, to: LLVMValue) -> None:
        with self.f.when(self.f.load(self._place(slot, offset), "i8").is_("eq", 0)):
            self.next.set(to)

    def _decrement_or_jump(self, register: LLVMValue, to: LLVMValue, _: LLVMValue) -> None:
        place = self._register(register)
        left = self.f.load(place, "i64")
        self.f.if_else(
            left.is_("sle", 0),
            lambda: self.next.set(to),
            lambda: self.f.store(left - 1, place),
        )

    def _swap(self, a: LLVMValue, b: LLVMValue, _: LLVMValue) -> None:
        f, first, second = self.f, self._slot(a), self._slot(b)
        one, other = f.load(first, "i64"), f.load(second, "i64")
        f.store(other, first)
        f.store(one, second)

    def _load_address(self, register: LLVMValue, slot: LLVMValue, offset: LLVMValue) -> None:
        base = self.f.load(self._slot(slot), "i64")
        self.f.store(base + offset, self._register(register))

    def _set(self, register: LLVMValue, number: LLVMValue, _: LLVMValue) -> None:
        self.f.store(number, self._register(register))

    def _store_and_advance(self, slot: LLVMValue, register: LLVMValue, step: LLVMValue) -> None:
        place = self._register(register)
        address = self.f.load(place, "i64")
        self.f.store(address, self._slot(slot))
        self.f.store(address + step, place)

    def _jump_by_index(self, slot: LLVMValue, offset: LLVMValue, last: LLVMValue) -> None:
        index = self.f.load(self._place(slot, offset), "i32").to("i64", "zext")
        self.next.set(self.next.get() + self.f.umin(index, last))
