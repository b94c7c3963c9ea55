"""Bytes of truth, walked through until one is found: `any`, `all` and the like, the first place;
of two arrays, whether some product is true.

What ends early is in no hurry: its tasks are shared with workers that are awake, but none is woken.
"""

from collections.abc import Sequence
from functools import partial, reduce
from operator import and_

from shardir.backends.cpu.native.data import Context, Kernel, Phase, Rule, View
from shardir.backends.cpu.native.llvm.text import Function, Module, Value, vector
from shardir.backends.cpu.native.schedule.views import is_packed
from shardir.ir import Op

WANTED = {"any": 1, "max": 1, "all": 0, "min": 0, "fused": 1}
"""The truth that decides, if there is one such byte."""
PIECE = 1 << 18
"""Bytes of a task."""
COST_AT_MOST = 150_000.0
STEP = 64


def found_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Reductions of all bools that lie together to one, and of products of two; `None` for
    others."""
    if op.name == "fused" and not _is_some_product(op):
        return None
    x, y = operands[0], results[0]
    if x.dtype != "bool" or y.size != 1 or not x.size or not is_packed(x):
        return None
    if any(other._replace(slot=0, offset=0) != x._replace(slot=0, offset=0) for other in operands):
        return None
    wanted, label = WANTED[op.name], op.name if op.name != "fused" else "any of and"
    pieces = -(-x.size // PIECE)
    if pieces == 1:
        return [_phase(wanted, operands, y, 1, label)]
    slot = context.temporary(pieces)
    parts = View(slot, 0, (pieces,), (1,), "bool")
    return [
        _phase(wanted, operands, parts, pieces, label),
        _phase(wanted, [parts], y, 1, label),
    ]


def _is_some_product(op: Op) -> bool:
    """Whether a group says if two arrays have a place where both are true."""
    (block,) = op.blocks
    if [each.name for each in block.ops] != ["and", "any"]:
        return False
    both, some = block.ops
    return (
        both.operands == block.params
        and some.operands == both.results
        and block.returns == some.results
    )


def or_else(rule: Rule) -> Rule:
    """`found_rule` where it has phases, and another rule where it has none."""

    def either(
        op: Op, operands: Sequence[View], results: Sequence[View], context: Context
    ) -> Sequence[Phase] | None:
        made = found_rule(op, operands, results, context)
        return rule(op, operands, results, context) if made is None else made

    return either


def _phase(wanted: int, xs: Sequence[View], y: View, tasks: int, label: str) -> Phase:
    size = xs[0].size
    name = f"found_{wanted}_{len(xs)}"
    kernel = Kernel(name, partial(_found_text, name, wanted, len(xs)))
    record = (size, y.slot, y.offset, *(word for x in xs for word in (x.slot, x.offset)))
    return Phase(kernel, record, tasks, min(size * len(xs) / 40, COST_AT_MOST), label)


def _found_text(name: str, wanted: int, count: int) -> str:
    module = Module()
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    size, to, there = (f.load(f.offset(record, i, "i64"), "i64") for i in range(3))
    begin = task * PIECE
    sources = []
    for k in range(count):
        slot, offset = (f.load(f.offset(record, 3 + 2 * k + i, "i64"), "i64") for i in range(2))
        base = f.load(f.offset(bases, slot, "ptr"), "ptr")
        sources.append(f.offset(base, offset + begin))
    steps = f.least(begin + PIECE, size) - begin
    found = first_place(f, sources, steps, wanted).is_("slt", steps)
    made = f.select(found, f.value(wanted, "i8"), 1 - wanted)
    f.store(made, f.offset(f.load(f.offset(bases, to, "ptr"), "ptr"), there + task))
    f.leave()
    return module.text()


def first_place(f: Function, sources: Sequence[Value], steps: Value, wanted: int) -> Value:
    """The first of `steps` bytes whose truth is `wanted`; `steps` where there is none.

    Of several sources, of the bytes that are true in all of them.
    """
    at, flags = f.variable("i64", 0), f.variable("i64", 0)
    unlike = "ne" if wanted else "eq"

    def goes_on() -> Value:
        return flags.get().is_("eq", 0) & (at.get() + STEP).is_("sle", steps)

    with f.while_(goes_on):
        bytes_ = _bytes(f, sources, at.get(), vector("i8", STEP))
        flags.set(bytes_.is_(unlike, 0).to("i64", "bitcast"))
        at.set(at.get() + STEP)

    def within() -> None:
        f.module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
        place = f.call("llvm.cttz.i64", [flags.get(), f.value(1, "i1")], "i64")
        at.set(at.get() - STEP + place)

    def behind() -> None:
        with f.while_(lambda: _is_other(f, sources, at.get(), steps, unlike)):
            at.set(at.get() + 1)

    f.choose(flags.get().is_("ne", 0), within, behind)
    return at.get()


def _bytes(f: Function, sources: Sequence[Value], at: Value, type: str) -> Value:
    loaded = [f.load(f.offset(source, at), type, 1) for source in sources]
    return reduce(and_, loaded)


def _is_other(f: Function, sources: Sequence[Value], at: Value, steps: Value, unlike: str) -> Value:
    """Whether there is a byte here that is not wanted; nothing is read behind the last."""
    inside = at.is_("slt", steps)
    byte = _bytes(f, sources, f.select(inside, at, 0), "i8")
    return inside & (byte.is_(unlike, 0) ^ 1)
