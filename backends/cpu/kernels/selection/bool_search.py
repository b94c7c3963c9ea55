"""Searches bools with early exit: `any`, `all` and the first true element; also `any(a & b)`.

A search that ends early has a low cost estimate: its tasks are shared with workers that are awake,
and none is woken. The first task always writes a result; the others first check whether a task
before them has decided it. Every nonzero byte is true, as in NumPy's arrays.
"""

from collections.abc import Sequence
from functools import partial, reduce
from operator import and_, or_

from shardir import ops
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue, vector_type
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, Kernel, LoweringContext, Phase, Rule
from shardir.backends.cpu.schedule.buffer_views import is_row_major
from shardir.backends.cpu.threads.parking import atomic_load, atomic_store
from shardir.ir.module import Op

DECIDING_BYTE = {"any": 1, "max": 1, "all": 0, "min": 0, "fused": 1}
"""The value of a byte that decides the reduction."""
MIN_TASK_BYTES, MAX_TASKS = 1 << 18, 64
"""Minimum bytes of a task, and about the maximum number of tasks."""
MAX_COST_NS = 150_000.0
"""Maximum estimate of nanoseconds, below the cost from which on a phase wakes workers."""
VECTOR_BYTES, VECTORS_PER_ITERATION = 64, 4
"""Bytes of a vector, and the number of vectors that are checked together."""


def search_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower a reduction of all contiguous bools to one, also of `and` of two arrays; return None
    for other operations."""
    if op.spec is ops.fused and not _is_any_of_and(op):
        return None
    x, y = operands[0], results[0]
    if x.dtype != "bool" or y.size != 1 or not x.size or not is_row_major(x):
        return None
    if any(other._replace(slot=0, offset=0) != x._replace(slot=0, offset=0) for other in operands):
        return None
    searched, label = DECIDING_BYTE[op.name], op.name if op.spec is not ops.fused else "any of and"
    pieces = -(-x.size // _task_bytes(x.size))
    first = _phase(searched, operands, y, 0, 1, label)
    return [first, _phase(searched, operands, y, 1, pieces - 1, label)] if pieces > 1 else [first]


def _task_bytes(size: int) -> int:
    return max(MIN_TASK_BYTES, size // (MAX_TASKS * VECTOR_BYTES) * VECTOR_BYTES)


def _is_any_of_and(op: Op) -> bool:
    """Return whether a fused group computes `any(a & b)`."""
    (block,) = op.blocks
    if [each.spec for each in block.ops] != [ops.and_, ops.any_]:
        return False
    both, some = block.ops
    return (
        both.operands == block.params
        and some.operands == both.results
        and block.returns == some.results
    )


def with_search(rule: Rule) -> Rule:
    """Return a rule that applies `search_rule`, and `rule` where it returns None."""

    def either(
        op: Op,
        operands: Sequence[BufferView],
        results: Sequence[BufferView],
        context: LoweringContext,
    ) -> Sequence[Phase] | None:
        result = search_rule(op, operands, results, context)
        return rule(op, operands, results, context) if result is None else result

    return either


def _phase(
    searched: int, xs: Sequence[BufferView], y: BufferView, first: int, pieces: int, label: str
) -> Phase:
    size = xs[0].size
    name = f"found_{searched}_{len(xs)}"
    kernel = Kernel(name, partial(_search_text, name, searched, len(xs)))
    places = (word for x in xs for word in (x.slot, x.offset))
    record = (first, _task_bytes(size), size, y.slot, y.offset, *places)
    cost = min(size, pieces * _task_bytes(size)) * len(xs) / 40
    return Phase(kernel, record, pieces, min(cost, MAX_COST_NS), label)


def _search_text(name: str, searched: int, count: int, machine: HostDescription) -> str:
    module = LLVMModule(machine)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    first, piece, size, to, there = (f.load(f.offset(record, i, "i64"), "i64") for i in range(5))
    begin = (first + task) * piece
    answer = f.offset(f.load(f.offset(bases, to, "ptr"), "ptr"), there)
    is_first = begin.is_("eq", 0)
    is_undecided = f.variable("i1", is_first)
    with f.when(is_first ^ 1):
        is_undecided.set(atomic_load(f, answer, "i8", "monotonic").is_("ne", searched))
    with f.when(is_undecided.get()):
        sources = []
        for k in range(count):
            slot, offset = (f.load(f.offset(record, 5 + 2 * k + i, "i64"), "i64") for i in range(2))
            base = f.load(f.offset(bases, slot, "ptr"), "ptr")
            sources.append(f.offset(base, offset + begin))
        found = _is_found(f, sources, f.umin(begin + piece, size) - begin, searched)
        with f.when(is_first | found):
            result = f.select(found, f.value(searched, "i8"), 1 - searched)
            atomic_store(f, result, answer, "i8", "monotonic")
    f.ret()
    return module.text()


def _is_found(
    f: LLVMFunction, sources: Sequence[LLVMValue], steps: LLVMValue, searched: int
) -> LLVMValue:
    """Return whether the truth of any of `steps` bytes is `searched`."""
    at, found = f.variable("i64", 0), f.variable("i1", 0)

    def goes_on() -> LLVMValue:
        return (found.get() ^ 1) & (at.get() + VECTORS_PER_ITERATION * VECTOR_BYTES).is_(
            "sle", steps
        )

    with f.while_(goes_on):
        seen = [
            _match_bytes(f, sources, at.get() + k * VECTOR_BYTES, VECTOR_BYTES, searched)
            for k in range(VECTORS_PER_ITERATION)
        ]
        found.set(reduce(or_, seen).to(f"i{VECTOR_BYTES}", "bitcast").is_("ne", 0))
        at.set(at.get() + VECTORS_PER_ITERATION * VECTOR_BYTES)
    with f.when(found.get() ^ 1):
        left = steps - at.get()
        place = find_first(f, [f.offset(each, at.get()) for each in sources], left, searched)
        found.set(place.is_("slt", left))
    return found.get()


def find_first(
    f: LLVMFunction, sources: Sequence[LLVMValue], steps: LLVMValue, searched: int
) -> LLVMValue:
    """Return the index of the first of `steps` bytes whose truth is `searched`; `steps` if none
    is.

    With several sources, the byte at an index must have this truth in all of them.
    """
    at, flags = f.variable("i64", 0), f.variable("i64", 0)

    def goes_on() -> LLVMValue:
        return flags.get().is_("eq", 0) & (at.get() + VECTOR_BYTES).is_("sle", steps)

    with f.while_(goes_on):
        flags.set(_match_bytes(f, sources, at.get(), VECTOR_BYTES, searched).to("i64", "bitcast"))
        at.set(at.get() + VECTOR_BYTES)

    def within() -> None:
        f.module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
        place = f.call("llvm.cttz.i64", [flags.get(), f.value(1, "i1")], "i64")
        at.set(at.get() - VECTOR_BYTES + place)

    def behind() -> None:
        with f.while_(lambda: flags.get().is_("eq", 0) & at.get().is_("slt", steps)):
            flags.set(_match_bytes(f, sources, at.get(), 1, searched).to("i64", "zext"))
            at.set(at.get() + 1)
        at.set(at.get() - flags.get())

    f.if_else(flags.get().is_("ne", 0), within, behind)
    return at.get()


def _match_bytes(
    f: LLVMFunction, sources: Sequence[LLVMValue], at: LLVMValue, count: int, searched: int
) -> LLVMValue:
    """Return the mask of `count` bytes whose truth is `searched` in all sources."""
    how = "ne" if searched else "eq"
    loaded = [f.load(f.offset(source, at), vector_type("i8", count), 1) for source in sources]
    return reduce(and_, [bytes_.is_(how, 0) for bytes_ in loaded])
