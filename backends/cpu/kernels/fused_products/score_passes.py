"""The computation of scores as numbered steps, and the passes over the scores of a block of rows.

A pass ends where a reduction over columns ends: its result is needed for each column. Steps of low
cost are computed again in each pass that needs them; others, such as exponentials, are stored in
place of scores that no later pass needs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardir.backends.cpu.kernels.elementwise.loop_body import (
    APPLY,
    ARRAY,
    CONSTANT,
    IOTA,
    REDUCE,
    LoopBody,
    LoopStep,
)
from shardir.backends.cpu.kernels.math import library
from shardir.ir.dtypes import FLOATS
from shardir.ir.module import Op, Value
from shardir.ops.contraction.dot import dot
from shardir.ops.control_flow.fused import REDUCTIONS
from shardir.ops.control_flow.fused_products import ProductNest
from shardir.ops.control_flow.loop_unification import (
    live_values,
    non_unit_dims,
)
from shardir.ops.shape.create import constant, iota
from shardir.ops.shape.rearrangements import broadcast, reshape

ROW, COLUMN, FIRST_BATCH = 0, 1, 2
"""The number of the row loop, of the column loop, and of the first batch loop."""
_COSTLY = ("div", "sqrt", "rsqrt", "rem", "pow")


@dataclass(frozen=True)
class ScoreSteps:
    """The steps of a block. Arrays are the score products, then the operands `operands`.

    `loops` are the loops of each step; `sums` are the steps that each sum multiplies, and `returns`
    those of returned values that are not sums.
    """

    body: LoopBody
    loops: tuple[frozenset[int], ...]
    operands: tuple[int, ...]
    products: int
    sums: tuple[int, ...]
    returns: tuple[int, ...]

    def varies(self, step: int) -> bool:
        """Return whether a step has a value for each column."""
        return COLUMN in self.loops[step]


def score_steps(nest: ProductNest) -> ScoreSteps:
    """Return the computation of a nest as steps."""
    return _StepBuilder(nest).build()


class _StepBuilder:
    def __init__(self, nest: ProductNest) -> None:
        self.nest = nest
        loops = (nest.row_loop, nest.column_loop, *nest.batch_loops)
        self.loop_numbers = {loop: number for number, loop in enumerate(loops)}
        self.steps: list[LoopStep] = []
        self.loops: list[frozenset[int]] = []
        self.known: dict[tuple[LoopStep, frozenset[int]], int] = {}
        self.number: dict[Value, int] = {}

    def build(self) -> ScoreSteps:
        nest, block = self.nest, self.nest.block
        products = [op.result for op in nest.score_products]
        for i, value in enumerate(products):
            self.add(value, LoopStep(ARRAY, value.type.dtype, number=i))
        live = live_values(block)
        inner = [op for op in block.ops if op.spec is not dot and op.results[0] in live]
        used = {value for op in inner for value in op.operands}
        used.update(nest.scores_and_matrix(op)[0] for op in nest.sums)
        operands = [i for i, param in enumerate(block.params) if param in used]
        for i, operand in enumerate(operands):
            param = block.params[operand]
            self.add(param, LoopStep(ARRAY, param.type.dtype, number=len(products) + i))
        for op in inner:
            self.add_operation(op)
        made = {op.result for op in nest.sums}
        return ScoreSteps(
            LoopBody(tuple(self.steps), ()),
            tuple(self.loops),
            tuple(operands),
            len(products),
            tuple(self.number[nest.scores_and_matrix(op)[0]] for op in nest.sums),
            tuple(self.number[value] for value in block.returns if value not in made),
        )

    def add(self, value: Value, step: LoopStep) -> None:
        """Append a step, unless it is already computed."""
        if step.kind == ARRAY:
            loops = frozenset(self.loop_numbers[loop] for loop in self.nest.mappings[value])
        elif step.kind == IOTA:
            loops = frozenset([step.number])
        else:
            loops = frozenset[int]().union(*(self.loops[i] for i in step.operands))
            loops -= {COLUMN} if step.kind == REDUCE else set()
        key = step, loops
        if key not in self.known:
            self.known[key] = len(self.steps)
            self.steps.append(step)
            self.loops.append(loops)
        self.number[value] = self.known[key]

    def add_operation(self, op: Op) -> None:
        result = op.result
        operands = tuple(self.number[value] for value in op.operands)
        if op.spec in (broadcast, reshape):
            self.number[result] = operands[0]
        elif op.spec is constant:
            text = ("value_text", repr(op.attrs["value"]))
            attrs = (*op.attrs.items(), text)
            self.add(result, LoopStep(CONSTANT, result.type.dtype, attrs=attrs))
        elif op.spec is iota:
            if result.type.shape[op.attrs["dim"]] == 1:
                self.add(result, LoopStep(CONSTANT, result.type.dtype, attrs=(("value", 0),)))
                return
            place = non_unit_dims(result.type).index(op.attrs["dim"])
            loop = self.loop_numbers[self.nest.mappings[result][place]]
            self.add(result, LoopStep(IOTA, result.type.dtype, number=loop))
        else:
            reduces = op.spec in REDUCTIONS
            kind, made = (REDUCE, ()) if reduces else (APPLY, tuple(sorted(op.attrs.items())))
            self.add(result, LoopStep(kind, result.type.dtype, op.name, operands, made))


@dataclass(frozen=True)
class ScorePass:
    """The work of a pass over the columns: the steps computed for each column, the reductions that
    end, the steps that are loaded from and stored to slots, and the sums that use stored scores."""

    steps: tuple[int, ...]
    reductions: tuple[int, ...]
    loads: tuple[tuple[int, int], ...]
    stores: tuple[tuple[int, int], ...]
    sums: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PassPlan:
    """The passes of a block of rows; `slots` is the number of arrays of scores."""

    passes: tuple[ScorePass, ...]
    slots: int
    depths: tuple[int, ...]
    """The number of passes that end before each step can be computed."""


def plan_score_passes(steps: ScoreSteps) -> PassPlan:
    """Return the passes that compute the steps."""
    depths = _depths(steps)
    reductions = steps.body.reductions
    roots: dict[int, set[int]] = {}
    for step in reductions:
        operand = steps.body.steps[step].operands[0]
        roots.setdefault(depths[operand], set()).add(operand)
    for step in steps.sums:
        roots.setdefault(depths[step], set()).add(step)
    count = max(roots) + 1
    stored = {step: depths[step] for step in steps.sums}
    closures = [_closure(steps, roots.get(number, ()), {}) for number in range(count)]
    for step in range(len(depths)):
        places = [number for number, closure in enumerate(closures) if step in closure]
        if len(places) > 1 and steps.varies(step) and _is_costly(steps.body.steps[step]):
            stored.setdefault(step, places[0])
    stored = {step: at for step, at in stored.items() if not _is_product(steps, step)}
    evaluated = []
    for number in range(count):
        ready = {step: at for step, at in stored.items() if at < number}
        now = {step for step, at in stored.items() if at == number}
        closure = _closure(steps, {*roots.get(number, ()), *now}, ready)
        evaluated.append((closure, now, set(ready)))
    return _assign_slots(steps, depths, evaluated)


def _depths(steps: ScoreSteps) -> tuple[int, ...]:
    depths: list[int] = []
    for step in steps.body.steps:
        depth = max((depths[i] for i in step.operands), default=0)
        depths.append(depth + (step.kind == REDUCE))
    return tuple(depths)


def _is_product(steps: ScoreSteps, step: int) -> bool:
    found = steps.body.steps[step]
    return found.kind == ARRAY and found.number < steps.products


def _is_costly(step: LoopStep) -> bool:
    if step.kind != APPLY or step.dtype not in FLOATS:
        return False
    return step.op in _COSTLY or library.symbol_of_op(step.op, "f32") is not None


def _closure(steps: ScoreSteps, roots: Iterable[int], ready: Mapping[int, int]) -> set[int]:
    """Return the steps with a value for each column that roots need, those in `ready` included but
    not those that only they need."""
    needed = steps.body.required_steps(roots, lambda i: i in ready or not steps.varies(i))
    return set(filter(steps.varies, needed))


def _assign_slots(
    steps: ScoreSteps,
    depths: tuple[int, ...],
    evaluated: Sequence[tuple[set[int], set[int], set[int]]],
) -> PassPlan:
    """Assign a slot to each array of scores: one that no later pass reads may be overwritten."""
    last_read: dict[int, int] = {}
    for number, (closure, _, ready) in enumerate(evaluated):
        for step in closure:
            if _is_product(steps, step) or step in ready:
                last_read[step] = number
    for step in steps.sums:
        if _is_product(steps, step):
            last_read[step] = max(last_read.get(step, 0), depths[step])
    slot_of = {i: i for i in range(steps.products)}
    slots = steps.products
    made = []
    for number, (closure, now, ready) in enumerate(evaluated):
        # A sum that reads a product directly reads it after the pass has overwritten other slots.
        kept = {step for step in steps.sums if depths[step] == number and _is_product(steps, step)}
        free = [
            slot
            for step, slot in slot_of.items()
            if last_read.get(step, -1) <= number and step not in kept
        ]
        taken = {slot for step, slot in slot_of.items() if slot not in free}
        free = sorted({slot for slot in free if slot not in taken})
        loads = [
            (step, slot_of[step]) for step in sorted(closure) if step in ready or step in slot_of
        ]
        for slot in free:
            slot_of = {step: own for step, own in slot_of.items() if own != slot}
        stores = []
        for step in sorted(now):
            slot = free.pop(0) if free else slots
            slots = max(slots, slot + 1)
            slot_of[step] = slot
            stores.append((step, slot))
        loaded = {step for step, _ in loads}
        computed = sorted(step for step in closure if step not in loaded)
        reductions = tuple(
            step
            for step in steps.body.reductions
            if depths[steps.body.steps[step].operands[0]] == number
        )
        sums = tuple(
            (i, slot_of[step]) for i, step in enumerate(steps.sums) if depths[step] == number
        )
        made.append(ScorePass(tuple(computed), reductions, tuple(loads), tuple(stores), sums))
    return PassPlan(tuple(made), slots, depths)
