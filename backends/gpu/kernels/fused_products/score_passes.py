"""The passes of a program over the columns of its rows.

A value that depends on a reduction is computed in a later pass, which computes the scores again:

    pass 0: %m = max(%s)
    pass 1: %z = sum(exp(%s - %m))
    pass 2: %y = dot(exp(%s - %m) / %z, %v)

Sums of exponentials relative to the largest score need no pass of their own. They are accumulated
relative to the largest score so far, and multiplied by a power of e when a larger one is found; a
division of the exponentials by their sum follows the last column (M. Milakov and N. Gimelshein,
Online normalizer calculation for softmax, 2018):

    pass 0: %m, %z, %y
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from shardir import ops
from shardir.backends.gpu.dtypes import PRODUCT_DTYPES
from shardir.ir.module import Op, Value
from shardir.ops.control_flow.fused_products import ROW_REDUCTIONS, ProductNest
from shardir.ops.shape.create import constant

MAX_EXPONENTIAL = 2.0**15
"""Maximum of an exponential times constants, so that it does not overflow in f16."""
_SAME_VALUE = (ops.broadcast, ops.reshape, ops.stop_gradient)


@dataclass(frozen=True, slots=True)
class Exponential:
    """A score that is an exponential relative to the maximum `largest`, times a constant, or zero,
    divided by `divisor`.

    `steps` are the values it is computed from, from the exponential on, and `bound` is the largest
    magnitude of the constants' product.
    """

    largest: Op
    steps: Set[Value]
    divisor: Value | None = None
    bound: float = 1.0


@dataclass(frozen=True, slots=True)
class ScorePass:
    """The reductions and column sums that end with a pass.

    `online` has those that are accumulated relative to a maximum of the same pass.
    """

    reductions: tuple[Op, ...]
    sums: tuple[Op, ...]
    online: Mapping[Op, Exponential]


@dataclass(eq=False)
class _Planner:
    nest: ProductNest
    makers: dict[Value, Op]
    levels: dict[Value, int] = field(default_factory=dict)
    """The number of passes that end before a value can be computed."""
    exponentials: dict[Value, Exponential] = field(default_factory=dict)
    passes: dict[Op, int] = field(default_factory=dict)
    online: dict[Op, Exponential] = field(default_factory=dict)

    def add(self, op: Op) -> None:
        """Number an operation that is no sum."""
        if op.spec in ROW_REDUCTIONS:
            self.levels[op.result] = self.add_root(op, op.operands[0]) + 1
            return
        self.levels[op.result] = max((self.level(x) for x in op.operands), default=0)
        found = self.exponential(op)
        if found is not None:
            self.exponentials[op.result] = found

    def add_root(self, op: Op, x: Value) -> int:
        """Return the pass of a reduction or sum of scores."""
        number = self.level(x)
        found = self.exponentials.get(x)
        is_sum = op.spec is ops.sum_ and found is not None and found.divisor is None
        if found is not None and (is_sum or op.spec is ops.dot):
            number = self.passes[found.largest]
            self.online[op] = found
        self.passes[op] = number
        return number

    def level(self, value: Value) -> int:
        return self.levels.get(value, 0)

    def exponential(self, op: Op) -> Exponential | None:
        """Return how an operation computes an exponential; `None` if it does not."""
        if op.spec is ops.exp and op.result.type.dtype == "f32":
            return self.relative_exponential(op)
        known = [(x, self.exponentials[x]) for x in op.operands if x in self.exponentials]
        if len(known) != 1:
            return None
        ((x, found),) = known
        others = [y for y in op.operands if y != x]
        steps = {*found.steps, op.result}
        if op.spec in (ops.mul, ops.div) and len(others) == 1:
            return self.multiple(op, found, steps, others[0])
        return replace(found, steps=steps) if self.keeps_value(op, found, others) else None

    def multiple(
        self, op: Op, found: Exponential, steps: Set[Value], other: Value
    ) -> Exponential | None:
        """Return an exponential times a constant, or divided by its sum."""
        if op.spec is ops.div and op.operands[1] != other:
            return None
        number = self.number(other)
        if number:
            factor = abs(number) if op.spec is ops.mul else 1 / abs(number)
            bound = max(found.bound * factor, found.bound)
            return replace(found, steps=steps, bound=bound) if bound <= MAX_EXPONENTIAL else None
        is_quotient = op.spec is ops.div and self.is_own_sum(other, found)
        return replace(found, steps=steps, divisor=other) if is_quotient else None

    def keeps_value(self, op: Op, found: Exponential, others: Sequence[Value]) -> bool:
        """Return whether a result is an exponential, negated or converted, or zero.

        A quotient that is replaced by zero is none: the quotient may be NaN, and the division after
        the last column would make the zero NaN, too.
        """
        if op.spec in (*_SAME_VALUE, ops.neg):
            return True
        if op.spec is ops.convert:
            return op.result.type.dtype in PRODUCT_DTYPES
        if op.spec is not ops.select or found.divisor is not None:
            return False
        mask = op.operands[0]
        is_early = self.level(mask) <= self.passes[found.largest]
        return is_early and all(y == mask or self.number(y) == 0 for y in others)

    def relative_exponential(self, op: Op) -> Exponential | None:
        largest = find_largest(self.makers, op)
        return None if largest is None else Exponential(largest, {op.result})

    def is_own_sum(self, value: Value, found: Exponential) -> bool:
        """Return whether a divisor is the sum of the exponentials that it divides, so that it is
        not zero unless all of them are."""
        maker = self.makers.get(self.source(value))
        return (
            found.divisor is None
            and maker is not None
            and maker.spec is ops.sum_
            and maker in self.online
            and maker.operands[0] in found.steps
        )

    def source(self, value: Value) -> Value:
        return source_value(self.makers, value)

    def number(self, value: Value) -> float | None:
        """Return the constant that a value equals everywhere, or `None`."""
        maker = self.makers.get(self.source(value))
        if maker is None or maker.spec is not constant:
            return None
        given = maker.attrs["value"]
        return float(given) if isinstance(given, (int, float)) else None


def source_value(makers: Mapping[Value, Op], value: Value) -> Value:
    """Return the value that operations without arithmetic broadcast or reshape."""
    maker = makers.get(value)
    while maker is not None and maker.spec in _SAME_VALUE:
        value = maker.operands[0]
        maker = makers.get(value)
    return value


def find_largest(makers: Mapping[Value, Op], op: Op) -> Op | None:
    """Return the maximum over columns to which the scores of an exponential are relative."""
    difference = makers.get(source_value(makers, op.operands[0]))
    if difference is None or difference.spec is not ops.sub:
        return None
    score, largest = (source_value(makers, value) for value in difference.operands)
    maker = makers.get(largest)
    if maker is None or maker.spec is not ops.max_:
        return None
    return maker if source_value(makers, maker.operands[0]) == score else None


def find_exponential_sums(block_ops: Iterable[Op]) -> Set[Value]:
    """Return the sums over columns of exponentials relative to the largest of their scores, and
    the values that these are broadcast to."""
    makers: dict[Value, Op] = {}
    found = set[Value]()
    for op in block_ops:
        makers[op.result] = op
        if op.spec is ops.sum_:
            maker = makers.get(source_value(makers, op.operands[0]))
            if maker is not None and maker.spec is ops.exp and find_largest(makers, maker):
                found.add(op.result)
        elif op.spec in _SAME_VALUE and op.operands[0] in found:
            found.add(op.result)
    return found


def plan_score_passes(nest: ProductNest, live: Iterable[Op]) -> tuple[ScorePass, ...]:
    """Return the passes that compute the reductions and the column sums among some operations."""
    ops_in_order = list(live)
    planner = _Planner(nest, {result: op for op in ops_in_order for result in op.results})
    sums = [op for op in ops_in_order if op in nest.sums]
    for op in ops_in_order:
        if op not in sums:
            planner.add(op)
    for op in sums:
        planner.add_root(op, nest.scores_and_matrix(op)[0])
    count = max(planner.passes.values(), default=-1) + 1
    return tuple(
        ScorePass(
            tuple(op for op in planner.passes if planner.passes[op] == number and op not in sums),
            tuple(op for op in sums if planner.passes[op] == number),
            {op: found for op, found in planner.online.items() if planner.passes[op] == number},
        )
        for number in range(count)
    )
