"""The columns that masks exclude for a whole block of rows, such as later keys in causal attention.

A mask is a comparison of sums of indices. Columns outside of a range are excluded for all rows of a
block. They need not be computed if they add nothing: their scores are constant, and exponentials of
their difference to a value of the row are zero. The kernel tests the latter for each block, and
computes all columns of a block with a row for which it does not hold, for example a row without any
visible key.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from shardir.backends.cpu.kernels.elementwise.loop_body import APPLY, CONSTANT, IOTA, REDUCE
from shardir.backends.cpu.kernels.fused_products.score_passes import COLUMN, PassPlan, ScoreSteps
from shardir.ir.dtypes import DTYPE_INFO, FLOATS, INTEGERS

_EXP_UNDERFLOWS = {"f32": -200.0, "f64": -1000.0}
"""Exponentials of smaller numbers are zero."""
_NEGATED = {"ge": "lt", "gt": "le", "lt": "ge", "le": "gt"}
_IDENTITIES = ("stop_gradient", "convert", "neg")
_FINITE = (
    *("stop_gradient", "convert", "neg", "add", "sub", "mul", "abs", "select"),
    *("maximum", "minimum", "clamp", "tanh", "logistic", "sin", "cos"),
)
"""Operations whose results are finite for finite operands, except for overflow."""
MAX_LOOP_EXTENT = 2**24
"""The longest loop for which masks are analyzed: sums of its indices fit 32 bits."""


class Bound(NamedTuple):
    """A condition on indices: the sum of `terms`, pairs of a loop and a coefficient, and `offset`
    is not negative."""

    terms: tuple[tuple[int, int], ...]
    offset: int

    @property
    def column_coefficient(self) -> int:
        return dict(self.terms).get(COLUMN, 0)


class RowCondition(NamedTuple):
    """A condition on each row: `fill` plus `sign` times the value of a step is less than `limit`.
    NaN does not satisfy it."""

    fill: float
    step: int
    limit: float
    sign: int = -1


class VisibleColumns(NamedTuple):
    """Bounds that all visible columns satisfy; other columns add nothing if the conditions hold
    after `passes` passes."""

    bounds: tuple[Bound, ...]
    conditions: tuple[RowCondition, ...]
    passes: int


def find_visible_columns(steps: ScoreSteps, plan: PassPlan) -> VisibleColumns | None:
    """Return the columns that must be computed; `None` if these are all."""
    masks = dict.fromkeys(
        step.operands[0] for step in steps.body.steps if step.kind == APPLY and step.op == "select"
    )
    for mask in masks:
        for is_visible in (True, False):
            bounds = tuple(
                bound
                for bound in _bounds(steps, mask, is_visible)
                if abs(bound.column_coefficient) == 1
            )
            if not bounds:
                continue
            conditions = _Excluded(steps, mask, is_visible).conditions()
            if conditions is None:
                continue
            passes = max((plan.depths[each.step] for each in conditions), default=0)
            if any(each.sums for each in plan.passes[:passes]):
                continue
            return VisibleColumns(bounds, tuple(dict.fromkeys(conditions)), passes)
    return None


def _bounds(steps: ScoreSteps, mask: int, value: bool) -> list[Bound]:
    """Return bounds that hold wherever a mask has a value."""
    step = steps.body.steps[mask]
    if step.kind != APPLY:
        return []
    if step.op == "not":
        return _bounds(steps, step.operands[0], not value)
    if step.op == ("and" if value else "or"):
        return [each for operand in step.operands for each in _bounds(steps, operand, value)]
    if step.op not in _NEGATED:
        return []
    op = step.op if value else _NEGATED[step.op]
    left, right = (_affine(steps, operand) for operand in step.operands)
    if left is None or right is None:
        return []
    if op in ("lt", "le"):
        left, right = right, left
    terms = dict(left[0])
    for loop, coefficient in right[0].items():
        terms[loop] = terms.get(loop, 0) - coefficient
    strict = op in ("gt", "lt")
    return [Bound(tuple(sorted(terms.items())), left[1] - right[1] - strict)]


def _affine(steps: ScoreSteps, number: int) -> tuple[Mapping[int, int], int] | None:
    """Return the coefficients of loop indices and the constant of an integer; `None` for others,
    and for integers that may wrap around."""
    made = _sum_of_indices(steps, number)
    if made is None:
        return None
    terms, offset = made
    lowest = offset + MAX_LOOP_EXTENT * sum(min(each, 0) for each in terms.values())
    highest = offset + MAX_LOOP_EXTENT * sum(max(each, 0) for each in terms.values())
    info = DTYPE_INFO[steps.body.steps[number].dtype]
    return made if info.min_integer <= lowest and highest <= info.max_integer else None


def _sum_of_indices(steps: ScoreSteps, number: int) -> tuple[Mapping[int, int], int] | None:
    step = steps.body.steps[number]
    if step.dtype not in INTEGERS:
        return None
    if step.kind == IOTA:
        return {step.number: 1}, 0
    if step.kind == CONSTANT:
        return {}, int(dict(step.attrs)["value"])
    if step.kind != APPLY:
        return None
    operands = [_affine(steps, operand) for operand in step.operands]
    if any(each is None for each in operands):
        return None
    if step.op in ("convert", "neg"):
        (only,) = operands
        assert only is not None
        sign = -1 if step.op == "neg" else 1
        return {loop: sign * each for loop, each in only[0].items()}, sign * only[1]
    if step.op not in ("add", "sub"):
        return None
    left, right = operands
    assert left is not None
    assert right is not None
    sign = -1 if step.op == "sub" else 1
    terms = dict(left[0])
    for loop, each in right[0].items():
        terms[loop] = terms.get(loop, 0) + sign * each
    return terms, left[1] + sign * right[1]


class _Excluded:
    """The values of steps in excluded columns: a number, or a number minus a value of the row."""

    def __init__(self, steps: ScoreSteps, mask: int, is_visible: bool) -> None:
        self.steps, self.mask, self.is_visible = steps, mask, is_visible
        self.found: list[RowCondition] = []
        self.values: dict[int, float | tuple[float, int]] = {}

    def conditions(self) -> Sequence[RowCondition] | None:
        """Return the conditions under which excluded columns add nothing to reductions and sums;
        `None` if they may add something."""
        for number, step in enumerate(self.steps.body.steps):
            if step.kind == REDUCE:
                value = self.values.get(step.operands[0])
                if step.op == "sum" and value == 0:
                    continue
                if step.op == "max" and isinstance(value, float):
                    self.found.append(RowCondition(value, number, 0.0))
                    continue
                return None
            value = self.value(number)
            if value is not None:
                self.values[number] = value
        if any(self.values.get(step) != 0 for step in self.steps.sums):
            return None
        return self.found

    def value(self, number: int) -> float | tuple[float, int] | None:
        """Return the value of a step; `None` if it is unknown."""
        step = self.steps.body.steps[number]
        if step.dtype not in FLOATS:
            return None
        if step.kind == CONSTANT:
            given = dict(step.attrs)["value"]
            return float(given) if isinstance(given, (int, float)) else None
        if step.kind != APPLY:
            return None
        operands = [self.values.get(operand) for operand in step.operands]
        if step.op == "select":
            return operands[2 if self.is_visible else 1] if step.operands[0] == self.mask else None
        first = operands[0]
        if step.op in _IDENTITIES and isinstance(first, float):
            return -first if step.op == "neg" else first
        if step.op in ("stop_gradient", "convert"):
            return first
        if step.op == "mul":
            return self.product(*step.operands)
        if step.op == "div" and first == 0:
            return self.quotient_of_zero(step.operands[1])
        if step.op == "sub" and isinstance(first, float):
            subtrahend = step.operands[1]
            if isinstance(operands[1], float):
                return first - operands[1]
            return None if self.steps.varies(subtrahend) else (first, subtrahend)
        if step.op == "exp" and isinstance(first, tuple) and step.dtype in _EXP_UNDERFLOWS:
            self.found.append(RowCondition(*first, _EXP_UNDERFLOWS[step.dtype]))
            return 0.0
        return None

    def product(self, first: int, second: int) -> float | None:
        x, y = self.values.get(first), self.values.get(second)
        if isinstance(x, float) and isinstance(y, float):
            return x * y
        if 0 not in (x, y):
            return None
        return 0.0 if self.is_finite(second if x == 0 else first) else None

    def quotient_of_zero(self, divisor: int) -> float | None:
        """Return 0 if the divisor is a number other than 0, or has one value for each row, which
        must be positive; `None` for others."""
        value = self.values.get(divisor)
        if isinstance(value, float):
            return 0.0 if value else None
        if self.steps.varies(divisor):
            return None
        self.found.append(RowCondition(0.0, divisor, 0.0))
        return 0.0

    def is_finite(self, number: int) -> bool:
        """Return whether a step is finite in excluded columns, if operands and reductions are."""
        step = self.steps.body.steps[number]
        if step.kind != APPLY or step.dtype not in FLOATS:
            return True
        if step.op in _FINITE:
            return all(map(self.is_finite, step.operands))
        if step.op == "div" and self.quotient_of_zero(step.operands[1]) == 0:
            return self.is_finite(step.operands[0])
        if self.steps.varies(number):
            return False
        self.found += [RowCondition(0.0, number, inf, sign) for sign in (-1, 1)]
        return True
