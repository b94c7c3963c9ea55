"""Bytes of truth, walked through until one is found: `any`, `all` and the like, the first place.

What ends early is in no hurry: its tasks are shared with workers that are awake, but none is woken.
"""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.native.data import Context, Kernel, Phase, Rule, View
from shardir.backends.cpu.native.llvm.text import Function, Module, Value, vector
from shardir.backends.cpu.native.schedule.views import is_packed
from shardir.ir import Op

WANTED = {"any": 1, "max": 1, "all": 0, "min": 0}
"""The truth that decides, if there is one such byte."""
PIECE = 1 << 18
"""Bytes of a task."""
COST_AT_MOST = 150_000.0
STEP = 64


def found_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Reductions of all bools that lie together to one; `None` for others."""
    (x,), (y,), wanted = operands, results, WANTED[op.name]
    if x.dtype != "bool" or y.size != 1 or not x.size or not is_packed(x):
        return None
    kernel = Kernel(f"found_{wanted}", partial(_found_text, wanted))
    pieces = -(-x.size // PIECE)
    if pieces == 1:
        return [_phase(kernel, x, y, 1, op.name)]
    slot = context.temporary(pieces)
    parts = View(slot, 0, (pieces,), (1,), "bool")
    return [_phase(kernel, x, parts, pieces, op.name), _phase(kernel, parts, y, 1, op.name)]


def or_else(rule: Rule) -> Rule:
    """`found_rule` where it has phases, and another rule where it has none."""

    def either(
        op: Op, operands: Sequence[View], results: Sequence[View], context: Context
    ) -> Sequence[Phase] | None:
        made = found_rule(op, operands, results, context)
        return rule(op, operands, results, context) if made is None else made

    return either


def _phase(kernel: Kernel, x: View, y: View, tasks: int, label: str) -> Phase:
    record = (x.slot, x.offset, x.size, y.slot, y.offset)
    return Phase(kernel, record, tasks, min(x.size / 40, COST_AT_MOST), label)


def _found_text(wanted: int) -> str:
    module = Module()
    f = Function(module, f"found_{wanted}", ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    slot, offset, size, to, there = (f.load(f.offset(record, i, "i64"), "i64") for i in range(5))
    begin = task * PIECE
    source = f.offset(f.load(f.offset(bases, slot, "ptr"), "ptr"), offset + begin)
    steps = f.least(begin + PIECE, size) - begin
    found = first_place(f, source, steps, wanted).is_("slt", steps)
    made = f.select(found, f.value(wanted, "i8"), 1 - wanted)
    f.store(made, f.offset(f.load(f.offset(bases, to, "ptr"), "ptr"), there + task))
    f.leave()
    return module.text()


def first_place(f: Function, source: Value, steps: Value, wanted: int) -> Value:
    """The first of `steps` bytes whose truth is `wanted`; `steps` where there is none."""
    at, flags = f.variable("i64", 0), f.variable("i64", 0)
    unlike = "ne" if wanted else "eq"

    def goes_on() -> Value:
        return flags.get().is_("eq", 0) & (at.get() + STEP).is_("sle", steps)

    with f.while_(goes_on):
        bytes_ = f.load(f.offset(source, at.get()), vector("i8", STEP), 1)
        flags.set(bytes_.is_(unlike, 0).to("i64", "bitcast"))
        at.set(at.get() + STEP)

    def within() -> None:
        f.module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
        place = f.call("llvm.cttz.i64", [flags.get(), f.value(1, "i1")], "i64")
        at.set(at.get() - STEP + place)

    def behind() -> None:
        with f.while_(lambda: _is_other(f, source, at.get(), steps, unlike)):
            at.set(at.get() + 1)

    f.choose(flags.get().is_("ne", 0), within, behind)
    return at.get()


def _is_other(f: Function, source: Value, at: Value, steps: Value, unlike: str) -> Value:
    """Whether there is a byte here that is not wanted; nothing is read behind the last."""
    inside = at.is_("slt", steps)
    byte = f.load(f.offset(source, f.select(inside, at, 0)), "i8")
    return inside & (byte.is_(unlike, 0) ^ 1)
