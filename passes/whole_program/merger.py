"""Add a leading dimension to each value for each sub-axis of the mesh along which devices differ.

before: `%h = dot(%x, %w, dims="bi,ih->bh") : f32[16, 128]`, where `%x` differs along `data`
after:  `%h = dot(%x, %w, dims="abi,ih->abh") : f32[4, 16, 128]`

Operations are visited in order. The replacement of a value has the dimensions of its sub-axes
first, in mesh order, and then its own; replicated values are computed once, unchanged. The most
frequent operations are batched in one step; any other is batched by the rule that it declares
(`OpSpec.batch`), one sub-axis after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shardir import ops as specs
from shardir.errors import MergeError
from shardir.interpret.interpreter import apply_op
from shardir.ir.builder import Builder, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Dense
from shardir.ir.sharding import Axes
from shardir.ir.types import INTEGERS, NumpyArray, TensorType
from shardir.op_rules.batching import shift_attributes
from shardir.passes.batching.batcher import Batcher
from shardir.passes.whole_program.mesh_sub_axes import SubAxes, axis_sizes

MAX_EVALUATED_ELEMENTS = 1024
"""Maximum size of arrays that depend on device positions and are evaluated at compile time."""


class BatchedValue(NamedTuple):
    """The replacement of a value of the per-device program, with a leading dimension for each of
    `sub_axes`."""

    value: Value
    sub_axes: Axes


MergeRule = Callable[["DeviceMerger", Op], Sequence[BatchedValue]]
"""Appends the replacement of an operation; returns the replacements of its results."""
Array = NumpyArray


class DeviceMerger:
    """Emits the merged program into the builder `b`.

    `new` maps values of the program to their replacements, `along` to their leading sub-axes, if
    any; `makers` holds the operations of the program.

    Mergers of nested blocks share these maps; each value has one definition, so entries cannot
    conflict.
    """

    def __init__(
        self,
        b: Builder,
        sub_axes: SubAxes,
        rules: Mapping[str, MergeRule],
        outer: "DeviceMerger | None" = None,
    ) -> None:
        self.b, self.sub_axes, self.rules = b, sub_axes, rules
        self.new: dict[Value, Value] = outer.new if outer else {}
        self.sub_axes_of: dict[Value, Axes] = outer.sub_axes_of if outer else {}
        self.makers: dict[Value, Op] = outer.makers if outer else {}
        self.constants: dict[Value, Op] = outer.constants if outer else {}
        self.numbers: dict[Value, Array] = outer.numbers if outer else {}

    def inner(self) -> "DeviceMerger":
        """Return the merger of a nested block."""
        return DeviceMerger(self.b.inner(), self.sub_axes, self.rules, self)

    # Values

    def param(self, old: Value, sub_axes: Axes) -> Value:
        """Return a parameter that replaces a value."""
        result = Value(self.type(old.type, sub_axes), old.name)
        self.bind(old, BatchedValue(result, sub_axes))
        return result

    def bind(self, old: Value, batched: BatchedValue) -> None:
        self.new[old] = batched.value
        if batched.sub_axes:
            self.sub_axes_of[old] = batched.sub_axes
        else:
            self.sub_axes_of.pop(old, None)

    def get(self, old: Value) -> BatchedValue:
        """Return the replacement of a value."""
        return BatchedValue(self.new.get(old, old), self.sub_axes_of.get(old, ()))

    def type(self, type: TensorType, sub_axes: Axes) -> TensorType:
        """Return the type with leading dimensions for `sub_axes`."""
        return type.with_shape((*axis_sizes(sub_axes), *type.shape)) if sub_axes else type

    def union(self, values: Sequence[Value]) -> Axes:
        """Return the sub-axes along which any of the values differs."""
        result: Axes = ()
        for value in values:
            sub_axes = self.sub_axes_of.get(value)
            if sub_axes and sub_axes != result:
                result = self.sub_axes.union(result, sub_axes) if result else sub_axes
        return result

    def broadcast_to(self, old: Value, sub_axes: Axes) -> Value:
        """Return the replacement of a value, broadcast to `sub_axes`, of which it has some."""
        return self.widen(self.get(old), sub_axes)

    def widen(self, batched: BatchedValue, sub_axes: Axes) -> Value:
        """Return the value broadcast along those of `sub_axes` that it lacks."""
        value, own = batched
        if own == sub_axes:
            return value
        rank = value.type.rank - len(own)
        type = value.type.with_shape((*axis_sizes(sub_axes), *value.type.shape[len(own) :]))
        constant = self.constants.get(value)
        if constant is not None and not isinstance(constant.attrs["value"], Dense):
            result: Value = self.b.constant(value=constant.attrs["value"], result=type)
            self.constants[result] = self.b.ops[-1]
            return result
        dims = (*map(sub_axes.index, own), *range(len(sub_axes), len(sub_axes) + rank))
        result = self.b.broadcast(value, dims=dims, result=type)
        return result

    def rename_last(self, value: Value, name: str, start: int) -> Value:
        """Return the value renamed if it is the result of the last operation, from `start` on."""
        ops = self.b.ops
        if len(ops) <= start:
            return value
        result = Value(value.type, self.b.names.fresh(name))
        ops[-1] = replace(ops[-1], results=(result,))
        return result

    def known_elements(self, value: Value) -> Array | None:
        """Return all elements of one of the new values if they are known and few."""
        result = self.numbers.get(value)
        if result is None and value in self.constants and value.type.size <= MAX_EVALUATED_ELEMENTS:
            result = self.numbers[value] = np.asarray(apply_op(self.constants[value], ()))
        return result

    # Operations

    def run(self, ops: Sequence[Op]) -> None:
        """Append the replacements of `ops`."""
        b, along, rules = self.b, self.sub_axes_of, self.rules
        outside = b.loc, b.why
        for op in ops:
            b.loc, b.why = op.loc, op.why
            start = len(b.ops)
            self.makers.update(dict.fromkeys(op.results, op))
            rule = rules.get(op.name)
            if rule is not None:
                self.bind_results(op, rule(self, op), start)
            elif op.spec.effect:
                raise merge_error(op, "has a side effect on each device")
            elif op.spec.spmd:
                raise merge_error(op, "is defined only per device")
            elif op.blocks:
                raise merge_error(op, "has operations inside", "run the pass inline before")
            elif not any(value in along for value in op.operands):
                self.copy(op)
            elif op.spec.elementwise:
                self.pointwise(op)
            else:
                self.bind_results(
                    op, (ONE_STEP_RULES.get(op.name) or batch_by_sub_axis)(self, op), start
                )
            if self.numbers:
                self.evaluate_positions(start)
        b.loc, b.why = outside

    def copy(self, op: Op) -> None:
        new = self.new
        if any(value in new for value in op.operands):
            op = replace(op, operands=tuple(new.get(value, value) for value in op.operands))
        if op.spec is specs.constant:
            self.constants[op.results[0]] = op
            if (
                self.sub_axes.levels.position_of_process is not None
                and op.results[0].type.dtype in INTEGERS
            ):
                # It may be the position of the process, on which offsets depend.
                self.known_elements(op.results[0])
        self.b.append(op)

    def pointwise(self, op: Op) -> None:
        """Append a batched elementwise operation; scalar operands are broadcast only if they
        differ."""
        sub_axes = self.union(op.operands)
        shape = op.results[0].type.shape
        operands = []
        for old in op.operands:
            batched = self.get(old)
            if old.type.shape == shape:
                operands.append(self.widen(batched, sub_axes))
            elif batched.sub_axes:
                dims = tuple(map(sub_axes.index, batched.sub_axes))
                type = old.type.with_shape((*axis_sizes(sub_axes), *shape))
                operands.append(self.b.broadcast(batched.value, dims=dims, result=type))
            else:
                operands.append(batched.value)
        results = tuple(Value(self.type(old.type, sub_axes), old.name) for old in op.results)
        for old, new in zip(op.results, results, strict=True):
            self.bind(old, BatchedValue(new, sub_axes))
        self.b.append(replace(op, operands=tuple(operands), results=results))

    def bind_results(self, op: Op, results: Sequence[BatchedValue], start: int) -> None:
        """Bind the values computed from operation number `start` on to the results of `op`, under
        their names."""
        ops = self.b.ops
        fresh = {value for each in ops[start:] for value in each.results}
        renamed: dict[Value, Value] = {}
        for old, (value, sub_axes) in zip(op.results, results, strict=True):
            if value in fresh and value not in renamed:
                renamed[value] = Value(value.type, old.name)
            self.bind(old, BatchedValue(renamed.get(value, value), sub_axes))
        if renamed:
            ops[start:] = substitute(Block((), tuple(ops[start:]), ()), renamed).ops
            for old_made, new_made in renamed.items():
                if old_made in self.numbers:
                    self.numbers[new_made] = self.numbers[old_made]
        for each in ops[start:]:
            if each.spec is specs.constant:
                self.constants[each.result] = each

    def evaluate_positions(self, start: int) -> None:
        """Evaluate small values that depend on device positions alone."""
        numbers = self.numbers
        for op in self.b.ops[start:]:
            if not any(value in numbers for value in op.operands):
                continue
            if any(value.type.size > MAX_EVALUATED_ELEMENTS for value in op.results) or not all(
                value.type.dtype in ("bool", *INTEGERS) for value in op.tensors
            ):
                continue
            arrays = [self.known_elements(value) for value in op.operands]
            constants = [array for array in arrays if array is not None]
            if len(constants) == len(arrays) and op.spec.reference is not None:
                results = apply_op(op, constants)
                pairs = zip(op.results, results if len(op.results) > 1 else (results,), strict=True)
                numbers.update((value, np.asarray(array)) for value, array in pairs)


def merge_error(
    op: Op, reason: str, remedy: str = "run the program without the pass merge-devices"
) -> MergeError:
    """Return a `MergeError` that names the operation and its source line."""
    what = f"%{op.results[0].name} = {op.name}" if op.results else op.name
    origin = f"\n --> {op.loc}" if op.loc else ""
    return MergeError(f"{what} {reason}; {remedy}{origin}")


# Operations that are batched in one step


def _batch_unary(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Batch operations with one operand whose dimensions come later."""
    value, sub_axes = merger.get(op.operands[0])
    attrs = shift_attributes(op.spec, op.attrs, len(sub_axes))
    types = tuple(merger.type(result.type, sub_axes) for result in op.results)
    results = merger.b.emit(op.spec, value, result=types[0] if len(types) == 1 else types, **attrs)
    return [
        BatchedValue(each, sub_axes)
        for each in (results if isinstance(results, tuple) else (results,))
    ]


def _concatenate(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    sub_axes = merger.union(op.operands)
    parts = [merger.broadcast_to(value, sub_axes) for value in op.operands]
    return [
        BatchedValue(merger.b.concatenate(*parts, dim=op.attrs["dim"] + len(sub_axes)), sub_axes)
    ]


def _pad(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    x, filler = op.operands
    if merger.sub_axes_of.get(filler):
        return batch_by_sub_axis(merger, op)
    value, sub_axes = merger.get(x)
    attrs = {name: (*(0 for _ in sub_axes), *each) for name, each in op.attrs.items()}
    return [BatchedValue(merger.b.pad(value, merger.get(filler).value, **attrs), sub_axes)]


def _dot(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Batch a contraction: one more letter for each sub-axis, for the operands that have it and for
    the result."""
    sub_axes = merger.union(op.operands)
    dims: str = op.attrs["dims"]
    operands, _, output = dims.partition("->")
    free = (letter for letter in _LETTERS if letter not in dims)
    letter = dict(zip(sub_axes, free, strict=False))
    if len(letter) < len(sub_axes):
        raise merge_error(op, "has more factors than there are letters")
    terms = [
        "".join(letter[sub_axis] for sub_axis in merger.sub_axes_of.get(value, ())) + term
        for value, term in zip(op.operands, operands.split(","), strict=True)
    ]
    dims = f"{','.join(terms)}->{''.join(letter.values())}{output}"
    values = [merger.get(value).value for value in op.operands]
    type = merger.type(op.result.type, sub_axes)
    return [BatchedValue(merger.b.dot(*values, dims=dims, result=type), sub_axes)]


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


ONE_STEP_RULES: dict[str, MergeRule] = {
    "concatenate": _concatenate,
    "pad": _pad,
    "dot": _dot,
    **dict.fromkeys(
        (
            "broadcast",
            "transpose",
            "slice",
            "reshape",
            "reverse",
            "sum",
            "prod",
            "max",
            "min",
            "any",
            "all",
            "random_bits",
            "random_split",
        ),
        _batch_unary,
    ),
}


def batch_by_sub_axis(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Batch an operation by its declared rule: one sub-axis after the other, the last of the mesh
    first."""
    sub_axes = merger.union(op.operands)
    if op.spec.batch is None:
        raise merge_error(op, "has no batching rule")
    own = [merger.sub_axes_of.get(value, ()) for value in op.operands]
    operands, results, ops = list(op.operands), list(op.results), [op]
    axes_of_results: list[Axes] = [() for _ in results]
    for sub_axis in reversed(sub_axes):
        batcher = Batcher(Builder(merger.b.names, op.loc), sub_axis.size, {})
        for value, has in zip(operands, (sub_axis in each for each in own), strict=True):
            if value not in batcher.replacement:
                shape = (sub_axis.size, *value.type.shape) if has else value.type.shape
                batcher.replacement[value] = Value(value.type.with_shape(shape), value.name)
        batcher.run(ops)
        operands = [batcher.replacement[value] for value in operands]
        grown = [batcher.is_batched(value) for value in results]
        results = [batcher.get(value) for value in results]
        axes_of_results = [
            (sub_axis, *has) if more else has
            for has, more in zip(axes_of_results, grown, strict=True)
        ]
        ops = batcher.b.ops
    new_operands = dict(
        zip(operands, (merger.get(value).value for value in op.operands), strict=True)
    )
    merger.b.ops.extend(substitute(Block((), tuple(ops), ()), new_operands).ops)
    return [
        BatchedValue(new_operands.get(value, value), has)
        for value, has in zip(results, axes_of_results, strict=True)
    ]
