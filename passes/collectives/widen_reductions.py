"""Compute sums over devices in a wider float.

before: `%g.partial = dot(%d, %x, ...) : bf16[4, 16]`
        `%g = all-reduce(%g.partial, axes=[data], op=add) : bf16[4, 16]`
        `%h = convert(%g) : f32[4, 16]`
after:  `%g.partial = dot(%d, %x, ...) : f32[4, 16]`
        `%h = all-reduce(%g.partial, axes=[data], op=add) : f32[4, 16]`

Mixed-precision training computes gradients in bf16 and applies them in f32. Without this pass,
every device rounds its partial sum to bf16 before the devices add them, and the sum is rounded
again. The pass is optional, because the collective sends more bytes.

Operations that are linear in all operands together or that scale by a number, and products before
them, compute in the wider dtype. A device accumulates a partial sum in a loop, and scales it by an
array, in the dtype of the program; the collective adds the converted results.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import ClassVar

from shardir import ops
from shardir.ir.builder import Builder, UniqueNames, substitute
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.operation import Dense
from shardir.ir.types import TensorType
from shardir.op_rules.linearity import linear_groups
from shardir.op_rules.widening import arithmetic_of
from shardir.passes.autodiff.phases import is_in_gradient
from shardir.passes.pipeline import Pass, Pipeline
from shardir.passes.rewriting import rebuild_device_programs, use_counts


@dataclass(frozen=True)
class WidenReductions(Pass, name="widen-reductions"):
    """Compute sums over devices of narrower floats in `dtype`.

    `of` selects the sums: those that compute gradients, or all.
    """

    choices: ClassVar = {"dtype": ("f32", "f64"), "of": ("all", "gradients")}

    dtype: str = "f32"
    of: str = "all"

    def __call__(self, module: Module) -> Module:
        return rebuild_device_programs(module, self, partial(_widen_program, self))


def widen_gradient_sums(steps: Pipeline, dtype: str) -> Pipeline:
    """Return the pipeline with the pass after its partitioning, if it has one."""
    if not any(step.name == "partition" for step in steps.passes):
        return steps
    widening = WidenReductions(dtype, of="gradients")
    return Pipeline.parse(f"default,after:partition,{widening}", steps)


def _widen_program(options: WidenReductions, block: Block, names: UniqueNames) -> Block:
    selected: set[Value] | None = None
    if options.of == "gradients":
        selected = set()
        _add_gradients(block, selected)
    return _widen_block(options, block, selected, names)


def _add_gradients(block: Block, gradients: set[Value]) -> None:
    """Add the values that operations of a gradient compute, and those that other operations and
    loops compute from them linearly."""
    for op in block.ops:
        for inner in op.blocks:
            _add_gradients(inner, gradients)
        if is_in_gradient(op):
            gradients.update(op.results)
        elif op.blocks:
            returned = (zip(op.results, inner.returns, strict=False) for inner in op.blocks)
            gradients.update(
                result for result, value in chain.from_iterable(returned) if value in gradients
            )
        else:
            # The product of two gradients, such as a square for a norm, is no gradient.
            groups = linear_groups(op)
            if sum(any(op.operands[i] in gradients for i in group) for group in groups) == 1:
                gradients.update(op.results)


def _widen_block(
    options: WidenReductions, block: Block, selected: set[Value] | None, names: UniqueNames
) -> Block:
    """Return a block that computes its sums over devices, or `selected` ones, in a wider dtype."""
    inner = tuple(
        replace(
            op, blocks=tuple(_widen_block(options, each, selected, names) for each in op.blocks)
        )
        if op.blocks
        else op
        for op in block.ops
    )
    block = replace(block, ops=inner)
    sums = _find_sums(options.dtype, block, selected)
    return _Widener(options.dtype, sums, names).block(block) if sums.collectives else block


@dataclass
class _Sums:
    """The sums over devices in a block, and the operations that compute in the wider dtype."""

    makers: Mapping[Value, Op]
    uses: Counter[Value]
    collectives: set[Value] = field(default_factory=set)
    """The results of the collectives."""
    partial_sums: set[Value] = field(default_factory=set)
    """The operands of the collectives, and the values from which linear operations compute them."""


def _find_sums(dtype: str, block: Block, selected: set[Value] | None) -> _Sums:
    makers = {value: op for op in block.ops for value in op.results}
    found = _Sums(makers, use_counts(block))
    for op in block.ops:
        if _sums_narrow_floats(op, dtype) and (
            selected is None or not selected.isdisjoint((op.operands[0], op.result))
        ):
            found.collectives.add(op.result)
            found.partial_sums.update(_walk_partial_sums(op.operands[0], found))
    return found


def _sums_narrow_floats(op: Op, dtype: str) -> bool:
    """Return whether an operation adds floats of fewer bits than `dtype` over devices."""
    if op.spec not in (ops.all_reduce, ops.reduce_scatter) or op.attrs["op"] != "add":
        return False
    info = DTYPE_INFO[op.result.type.dtype]
    return info.kind == "float" and info.bits < DTYPE_INFO[dtype].bits


def _walk_partial_sums(value: Value, found: _Sums) -> Iterator[Value]:
    """Yield the operand of a collective, and the operands of linear operations from which it is
    computed, as far as the collective alone needs them."""
    op = found.makers.get(value)
    if op is None or found.uses[value] != 1:
        return
    if _sums_products(op):
        yield value
    else:
        summed = _summed_operands(op, found.makers)
        if summed:
            yield value
        for operand in summed:
            if operand.type.dtype == value.type.dtype:
                yield from _walk_partial_sums(operand, found)


def _sums_products(op: Op) -> bool:
    """Return whether an operation can state a wider dtype for its sums of products."""
    arithmetic = arithmetic_of(op)
    return arithmetic is not None and arithmetic.sums_products


def _summed_operands(op: Op, makers: Mapping[Value, Op]) -> list[Value]:
    """Return the operands of which an operation may compute partial sums: it is linear in them
    together, or scales one by a number. Operations between devices are not linear."""
    summed: list[Value] = []
    for group in linear_groups(op):
        others = [value for i, value in enumerate(op.operands) if i not in group]
        if all(
            value.type.dtype == op.result.type.dtype and _has_one_number(value, makers)
            for value in others
        ):
            summed += [op.operands[i] for i in group]
    return summed


def _has_one_number(value: Value, makers: Mapping[Value, Op]) -> bool:
    """Return whether all elements of a value are known to be equal."""
    if not value.type.rank:
        return True
    op = makers.get(value)
    if op is None:
        return False
    if op.spec is ops.broadcast:
        return not op.operands[0].type.rank
    return op.spec is ops.constant and not isinstance(op.attrs["value"], Dense)


class _Widener:
    """Rebuilds the operations of a block."""

    def __init__(self, dtype: str, sums: _Sums, names: UniqueNames) -> None:
        self.dtype = dtype
        self.sums = sums
        self.builder = Builder(names)
        self.wide: dict[Value, Value] = {}
        """The value in the wider dtype for each value of the block that has one."""
        self.converted: dict[Value, Value] = {}
        """The replacements of conversions of sums to the wider dtype."""

    def block(self, block: Block) -> Block:
        conversions = self._conversions(block)
        for op in block.ops:
            self.builder.loc, self.builder.why = op.loc, op.why
            result = op.results[0] if op.results else None
            if result in self.sums.partial_sums:
                self._compute(op, replace(op.result, type=self._wide_type(op.result)))
            elif result in self.sums.collectives:
                self._reduce(op, conversions.get(op.result, []))
            elif result not in self.converted:
                self.builder.append(self._from_wide(op))
        rebuilt = replace(block, ops=tuple(self.builder.ops))
        return substitute(rebuilt, self.converted) if self.converted else rebuilt

    def _conversions(self, block: Block) -> dict[Value, list[Value]]:
        """Return the conversions of each sum to floats of more bits."""
        found: dict[Value, list[Value]] = {}
        for op in block.ops:
            if self._converts_sum(op):
                found.setdefault(op.operands[0], []).append(op.result)
        return found

    def _converts_sum(self, op: Op) -> bool:
        """Return whether an operation converts a sum over devices to a float of more bits."""
        if op.spec is not ops.convert or op.operands[0] not in self.sums.collectives:
            return False
        source, target = (DTYPE_INFO[value.type.dtype] for value in (*op.operands, op.result))
        return target.kind == "float" and target.bits > source.bits

    def _from_wide(self, op: Op) -> Op:
        """Return a conversion of a sum as one of the sum in the wider dtype, others unchanged."""
        return replace(op, operands=(self.wide[op.operands[0]],)) if self._converts_sum(op) else op

    def _wide_type(self, value: Value) -> TensorType:
        return value.type.with_dtype(self.dtype)

    def _reduce(self, op: Op, conversions: list[Value]) -> None:
        """Append a collective on the wider dtype, whose result replaces its conversions to it."""
        hint = self.builder.names.fresh(f"{op.result.name}.wide")
        unconverted = replace(op.result, type=self._wide_type(op.result), name=hint)
        equal = [each for each in conversions if each.type.dtype == self.dtype]
        total = equal[0] if equal else unconverted
        self._compute(op, total)
        self.converted.update(dict.fromkeys(equal, total))
        if self.sums.uses[op.result] > len(conversions):
            narrow = Op(ops.convert, (total,), (op.result,), {}, (), op.loc, op.why)
            self.builder.append(narrow)

    def _compute(self, op: Op, result: Value) -> None:
        """Append an operation that computes `result`, the value of its result in the wider
        dtype."""
        operands = op.operands
        if not _sums_products(op):
            operands = tuple(map(self._widen, operands))
        self.builder.append(replace(op, operands=operands, results=(result,)))
        self.wide[op.result] = result

    def _widen(self, value: Value) -> Value:
        """Return a value of a narrower dtype in the wider one."""
        if value not in self.wide:
            self.wide[value] = self.builder.emit(
                ops.convert, value, result=self._wide_type(value), name=f"{value.name}.wide"
            )
        return self.wide[value]
