"""Algebraic identities that `simplify` applies, one function each.

A rule takes an operation and facts about its operands, and returns the value that the result
equals, another operation that computes the result, or `None`. All rules are exact for every input,
bit for bit: x + 0.0 is not x for x = -0.0, but x + -0.0 and x - 0.0 are.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import copysign
from typing import final

import numpy as np

from shardir import ops
from shardir.interpret.widened_arrays import run_reference
from shardir.ir.dtypes import COMPLEX, DTYPE_INFO, FLOATS, INTEGERS, represents_float
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS, Dense, OpSpec
from shardir.ir.types import NumpyArray, TensorType


@final
class ValueFacts:
    """Facts about values: the operations that define them, and their number of uses."""

    def __init__(self) -> None:
        self.makers: dict[Value, Op] = {}
        self.uses: dict[Value, int] = {}

    def count(self, values: Iterable[Value]) -> None:
        for value in values:
            self.uses[value] = self.uses.get(value, 0) + 1

    def maker(self, value: Value, spec: OpSpec) -> Op | None:
        """Return the operation that defines `value` if it is an application of `spec`."""
        op = self.makers.get(value)
        return op if op is not None and op.spec is spec else None

    def inner(self, op: Op, spec: OpSpec) -> Op | None:
        """Return the operation that defines the first operand if it is an application of `spec` and
        can be merged with `op`."""
        first = self.maker(op.operands[0], spec)
        return first if op.operands[0].sharding is None else None

    def splat(self, value: Value) -> complex | None:
        """Return the number that all elements of a value equal, if known."""
        op = self.maker(value, ops.constant)
        if op is None or isinstance(op.attrs["value"], Dense):
            return None
        number: complex = op.attrs["value"]
        return number

    def all_are(self, value: Value, number: complex) -> bool:
        """Return whether all elements are exactly `number`, the sign of zero included."""
        splat_value = self.splat(value)
        return splat_value is not None and _bits(splat_value) == _bits(number)


def _bits(number: complex) -> tuple[complex, float, float]:
    complex_number = complex(number)
    return complex_number, copysign(1, complex_number.real), copysign(1, complex_number.imag)


SimplificationRule = Callable[[Op, ValueFacts], Value | Op | None]
SIMPLIFICATION_RULES: dict[str, list[SimplificationRule]] = {}


def simplification_rule(*names: str) -> Callable[[SimplificationRule], SimplificationRule]:
    """Register a rule for operations."""

    def register(function: SimplificationRule) -> SimplificationRule:
        for name in names:
            SIMPLIFICATION_RULES.setdefault(name, []).append(function)
        return function

    return register


def constant(op: Op, number: complex | Dense | None) -> Op:
    """Return an operation that defines the result of `op` as a constant."""
    return replace(op, spec=OPS["constant"], operands=(), attrs={"value": number})


def fold_constants(op: Op, facts: ValueFacts) -> Op | None:
    """Return the constant that a pointwise operation on constants equals."""
    if not op.spec.elementwise or len(op.results) != 1 or op.spec in _UNFOLDED_OPERATIONS:
        return None
    numbers = [facts.splat(value) for value in op.operands]
    type = op.result.type.with_shape(())
    if any(n is None for n in numbers) or op.spec.reference is None:
        return None
    arrays = [np.asarray(n, v.type.numpy) for n, v in zip(numbers, op.operands, strict=True)]
    with np.errstate(all="ignore"):
        result = run_reference(replace(op, results=(replace(op.result, type=type),)), arrays)
    return constant(op, _number(np.asarray(result), type))


_UNFOLDED_OPERATIONS = (ops.sharding_constraint, ops.reshard, ops.stop_gradient)


def _number(array: NumpyArray, type: TensorType) -> complex:
    """Return the element as a Python number of the kind that a constant of this type holds."""
    if type.dtype in COMPLEX:
        return complex(array)
    if type.dtype in FLOATS:
        return float(array)
    return bool(array) if type.dtype == "bool" else int(array)


# Arithmetic with neutral elements


@simplification_rule("add")
def _add_zero(op: Op, facts: ValueFacts) -> Value | None:
    zero = {True: complex(-0.0, -0.0), False: -0.0}[op.result.type.dtype in COMPLEX]
    nothing = 0 if op.result.type.dtype in INTEGERS else zero
    return _remove_neutral(op, facts, nothing, both=True)


@simplification_rule("sub")
def _subtract_zero(op: Op, facts: ValueFacts) -> Value | None:
    return _remove_neutral(op, facts, 0, both=False)


@simplification_rule("mul", "div", "pow")
def _multiply_by_one(op: Op, facts: ValueFacts) -> Value | None:
    if op.result.type.dtype not in (*INTEGERS, *FLOATS):
        return None
    return _remove_neutral(op, facts, 1, both=op.spec is ops.mul)


@simplification_rule("or", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic")
def _combine_with_zero_bits(op: Op, facts: ValueFacts) -> Value | None:
    return _remove_neutral(op, facts, 0, both=op.spec in (ops.or_, ops.xor))


def _remove_neutral(op: Op, facts: ValueFacts, number: complex, *, both: bool) -> Value | None:
    x, y = op.operands
    if facts.all_are(y, number):
        return x
    return y if both and facts.all_are(x, number) else None


@simplification_rule("maximum", "minimum", "and", "or")
def _idempotent(op: Op, facts: ValueFacts) -> Value | None:
    x, y = op.operands
    return x if x is y else None


@simplification_rule("select")
def _constant_select(op: Op, facts: ValueFacts) -> Value | None:
    predicate, x, y = op.operands
    chosen = facts.splat(predicate)
    if x is y or chosen is True:
        return x
    if chosen is False:
        return y
    # Batching masks derivatives so; see `passes/batching/branch_masks.py`.
    stopped = facts.maker(y, ops.stop_gradient)
    return x if stopped is not None and stopped.operands[0] is x else None


@simplification_rule("neg", "not", "conj", "reverse")
def _involution(op: Op, facts: ValueFacts) -> Value | None:
    first = facts.inner(op, op.spec)
    return first.operands[0] if first and dict(first.attrs) == dict(op.attrs) else None


@simplification_rule("abs")
def _nested_abs(op: Op, facts: ValueFacts) -> Value | Op | None:
    if facts.inner(op, ops.abs_):
        return op.operands[0]
    first = facts.inner(op, ops.neg)
    return replace(op, operands=first.operands) if first else None


# Conversion


def _can_represent(wide: str, narrow: str) -> bool:
    """Return whether the element type `wide` represents every value of `narrow`."""
    if narrow == "bool":
        return DTYPE_INFO[wide].has_zero
    if narrow in FLOATS:
        return wide in FLOATS and represents_float(wide, narrow)
    if narrow not in INTEGERS:
        return False
    info = DTYPE_INFO[narrow]
    if wide in INTEGERS:
        room = DTYPE_INFO[wide]
        return room.min_integer <= info.min_integer and info.max_integer <= room.max_integer
    return wide in ("f32", "f64") and info.bits <= DTYPE_INFO[wide].precision_bits


@simplification_rule("convert")
def _convert(op: Op, facts: ValueFacts) -> Value | Op | None:
    (x,) = op.operands
    if x.type == op.result.type:
        return x
    first = facts.inner(op, ops.convert)
    if first is None:
        return None
    source, between, target = (v.type.dtype for v in (first.operands[0], x, op.result))
    if not _can_represent(between, source):
        return None
    # An integer out of range wraps when it is converted from an integer type, but saturates when it
    # is converted from a floating-point type.
    saturates = between in FLOATS and source in INTEGERS and target in INTEGERS
    return (
        None
        if saturates and not _can_represent(target, source)
        else replace(op, operands=first.operands)
    )


# Data movement


@simplification_rule(
    "broadcast", "reshape", "transpose", "reverse", "slice", "dynamic_slice", "bitcast"
)
def _move_splat(op: Op, facts: ValueFacts) -> Op | None:
    number = facts.splat(op.operands[0])
    if number is None or op.result.type.dtype != op.operands[0].type.dtype:
        return None
    return constant(op, number)


@simplification_rule("reshape", "dynamic_slice", "slice", "bitcast")
def _move_to_same_type(op: Op, facts: ValueFacts) -> Value | None:
    """Remove an operation whose result has its operand's type: a slice of full size starts at 0."""
    x = op.operands[0]
    return x if x.type == op.result.type else None


@simplification_rule("reshape")
def _reshape_twice(op: Op, facts: ValueFacts) -> Op | None:
    first = facts.inner(op, ops.reshape)
    return replace(op, operands=first.operands) if first else None


@simplification_rule("broadcast")
def _broadcast(op: Op, facts: ValueFacts) -> Value | Op | None:
    (x,) = op.operands
    if x.type == op.result.type:
        return x
    first = facts.inner(op, ops.broadcast)
    if first is None:
        return None
    dims = tuple(op.attrs["dims"][d] for d in first.attrs["dims"])
    sizes = zip(first.operands[0].type.shape, dims, strict=True)
    if all(n in (1, op.result.type.shape[d]) for n, d in sizes):
        return replace(op, operands=first.operands, attrs={**op.attrs, "dims": dims})
    return None


@simplification_rule("transpose")
def _transpose(op: Op, facts: ValueFacts) -> Value | Op | None:
    perm = op.attrs["perm"]
    if list(perm) == list(range(len(perm))):
        return op.operands[0]
    first = facts.inner(op, ops.transpose)
    if first is None:
        return None
    joined = tuple(first.attrs["perm"][d] for d in perm)
    return replace(op, operands=first.operands, attrs={**op.attrs, "perm": joined})


@simplification_rule("slice")
def _slice_twice(op: Op, facts: ValueFacts) -> Op | None:
    first = facts.inner(op, ops.slice_)
    if first is None or not op.result.type.size:
        return None
    pairs = list(zip(first.attrs["starts"], first.attrs["strides"], strict=True))
    starts = tuple(s + at * step for (s, step), at in zip(pairs, op.attrs["starts"], strict=True))
    strides = tuple(step * by for (_, step), by in zip(pairs, op.attrs["strides"], strict=True))
    attrs = {**op.attrs, "starts": starts, "strides": strides}
    return replace(op, operands=first.operands, attrs=attrs)


@simplification_rule("pad")
def _empty_padding(op: Op, facts: ValueFacts) -> Value | None:
    around = (*op.attrs["low"], *op.attrs["high"], *op.attrs["interior"])
    return None if any(around) else op.operands[0]


@simplification_rule("concatenate")
def _concatenate(op: Op, facts: ValueFacts) -> Value | Op | None:
    dim = op.attrs["dim"]
    full = tuple(x for x in op.operands if x.type.shape[dim])
    if len(full) == 1:
        return full[0]
    return replace(op, operands=full) if 0 < len(full) < len(op.operands) else None


@simplification_rule("dynamic_update_slice")
def _full_update(op: Op, facts: ValueFacts) -> Value | None:
    x, update, *_ = op.operands
    return update if update.type == x.type else None


@simplification_rule("max", "min", "any", "all")
def _empty_reduction(op: Op, facts: ValueFacts) -> Value | None:
    return None if op.attrs["dims"] else op.operands[0]


# Shardings


@simplification_rule("sharding_constraint", "reshard")
def _same_sharding(op: Op, facts: ValueFacts) -> Value | None:
    x = op.operands[0]
    return x if x.sharding is not None and x.sharding == op.result.sharding else None


@simplification_rule("reshard")
def _merge_reshards(op: Op, facts: ValueFacts) -> Op | None:
    first = facts.maker(op.operands[0], ops.reshard)
    if first is None or facts.uses.get(first.result, 0) != 1:
        return None
    return replace(op, operands=first.operands)


@simplification_rule(
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute"
)
def _communicate_zeros(op: Op, facts: ValueFacts) -> Op | None:
    """Replace communication of zeros by zeros.

    A sum of zeros is zero, and so is the result of `collective-permute` on a device without a
    source.
    """
    return constant(op, facts.splat(op.operands[0])) if _is_zero_exchange(op, facts) else None


def _is_zero_exchange(op: Op, facts: ValueFacts) -> bool:
    preserves_zero = op.attrs.get("op") in (None, "add", "max", "min", "or", "and")
    return preserves_zero and facts.all_are(op.operands[0], 0)
