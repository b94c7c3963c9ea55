"""Batch the operations of one block.

Operations are visited in order. Their operands have been replaced before: by a value with a leading
batch dimension, or by an unbatched copy. An operation without batched operands is copied; any other
is transformed by its batching rule, or by the handler of its control flow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from shardir.errors import VectorizeError
from shardir.ir.builder import Builder, as_values, copy_op
from shardir.ir.module import Op, Value
from shardir.ir.operation import missing_rule_hint
from shardir.ir.sharding import Axes, Axis
from shardir.op_rules.batching import BatchedOp, batch_elementwise, broadcast_over_batch
from shardir.ops.control_flow.control_flow import case, scan, while_
from shardir.ops.control_flow.derivative_regions import checkpoint
from shardir.ops.random.random_bits import is_draw_from_rbg
from shardir.passes.batching.branch_masks import (
    BranchMask,
    mask_derivative,
    mask_operands,
    mask_unbatched_operands,
)

MASKED_INSIDE = (case, checkpoint, scan, while_)
"""Operations in whose blocks the mask of a branch applies: their handlers pass it on,
except that of a checkpoint with its own `batching`."""

Handler = Callable[["Batcher", Op], Sequence[Value]]
"""Batches an operation with blocks, one along the vectorized axis, or a draw of random bits from
keys of four words, and returns its results."""

BatchAxes = Callable[[Axes], Axes]
"""Maps the axes of a manual computation to those that shard the batch dimension."""


class Batcher:
    """Emits batched operations into the builder `b`.

    `new` maps values of the program to their replacements, `original` maps back. `axis` is the name
    by which collectives refer to the batch dimension.

    Batchers of nested blocks share both maps; each value has one definition, so entries cannot
    conflict. `constants` are the values of the program that depend on no parameter. `mask` states
    which elements take the branch that is batched, if elements take different ones; see
    `branch_masks`.
    """

    def __init__(
        self,
        b: Builder,
        size: int,
        handlers: Mapping[str, Handler],
        axis: str | None = None,
        new: dict[Value, Value] | None = None,
        heirs: dict[Value, Value] | None = None,
        front: BatchAxes | None = None,
        constants: set[Value] | None = None,
        mask: BranchMask | None = None,
    ) -> None:
        self.b = b
        self.size = size
        self.handlers = handlers
        self.axis = axis
        self.batch_axes = front
        self.replacement: dict[Value, Value] = {} if new is None else new
        self.original: dict[Value, Value] = {} if heirs is None else heirs
        self.constants: set[Value] = set() if constants is None else constants
        self.mask = mask

    def inner(self, pieces: int = 1, *, has_mask: bool = False) -> "Batcher":
        """Return the batcher of a nested block; `pieces` is the number of shards of the batch
        inside of it, and `has_mask` states whether the mask applies there."""
        return self._derive(self.b.inner(), self.size // pieces, self.mask if has_mask else None)

    def with_mask(self, mask: Value) -> "Batcher":
        """Return the batcher of a branch that only the elements of `mask` take."""
        if self.mask is not None:
            mask = self.b.and_(self.mask.lanes, mask)
        return self._derive(self.b, self.size, BranchMask(self.b, mask))

    def _derive(self, b: Builder, size: int, mask: BranchMask | None) -> "Batcher":
        return type(self)(
            b,
            size,
            self.handlers,
            self.axis,
            self.replacement,
            self.original,
            self.batch_axes,
            self.constants,
            mask,
        )

    def param(self, old: Value, batched: bool) -> Value:
        """Return a parameter that replaces a value, with or without the batch dimension."""
        shape = (self.size, *old.type.shape) if batched else old.type.shape
        result = self.b.param(old.type.with_shape(shape), old.name)
        self.bind(result, old)
        return result

    def bind(self, new: Value, old: Value) -> None:
        """Record that `new` replaces a value of the program."""
        self.replacement[old] = new
        self.original.setdefault(new, old)

    def get(self, value: Value) -> Value:
        """Return the replacement of a value."""
        return self.replacement.get(value, value)

    def is_batched(self, value: Value) -> bool:
        """Return whether the replacement of a value is batched."""
        return self.get(value).type.rank > value.type.rank

    def get_batched(self, value: Value) -> Value:
        """Return the replacement of a value, broadcast along the batch dimension if necessary."""
        result = self.get(value)
        if self.is_batched(value):
            return result
        result = broadcast_over_batch(self.b, result, self.size)
        if self.mask is None or value in self.constants:
            return result
        return mask_derivative(self.b, self.mask.lanes, result)

    def run(self, ops: Sequence[Op]) -> None:
        """Append the replacements of `ops`."""
        loc, why = self.b.loc, self.b.why
        for op in ops:
            self.b.loc, self.b.why = op.loc, op.why
            if any(self.is_batched(value) for value in op.uses()) or self.is_along(op):
                mask = self.mask
                results = self._through(op) if mask is None else self._through_masked(op, mask)
                for old, new in zip(op.results, results, strict=True):
                    self.bind(new, old)
            else:
                self._copy(op)
        self.b.loc, self.b.why = loc, why

    def _through(self, op: Op) -> Sequence[Value]:
        is_along = self.is_along(op)
        if op.name in self.handlers and (op.blocks or is_along or is_draw_from_rbg(op)):
            return self.handlers[op.name](self, op)
        rule = op.spec.batch or (batch_elementwise if op.spec.elementwise else None)
        if rule is None or is_along:
            what = f"%{op.results[0].name} = {op.name}" if op.results else op.name
            hint = missing_rule_hint(op, "batch")
            raise error(f"{what} has no batching rule{hint}", op)
        many = BatchedOp(op, self.size, tuple(map(self.is_batched, op.operands)))
        result = rule(self.b, many, *map(self.get, op.operands), **op.rule_arguments)
        return as_values(result)

    def _through_masked(self, op: Op, mask: BranchMask) -> Sequence[Value]:
        """Return the results of an operation of a branch that the elements of `mask` take."""
        if op.spec in MASKED_INSIDE and not op.attrs.get("batching"):
            return self._through(op)
        uses = {value: self.get(value) for value in op.uses()}
        masked = mask_operands(self.b, mask, op, uses, self.constants)
        self.replacement.update(masked.new)
        results = self._through(op)
        self.replacement.update(uses)
        if not masked.has_masked_result:
            return results
        return [mask_derivative(self.b, mask.lanes, result) for result in results]

    def is_along(self, op: Op) -> bool:
        """Return whether an operation, or a nested one, is along the vectorized axis."""
        if self.axis is None:
            return False
        if op.spec.spmd and any(axis.name == self.axis for axis in collective_axes(op)):
            return True
        return any(self.is_along(inner) for block in op.blocks for inner in block.ops)

    def _copy(self, op: Op) -> None:
        if self.constants.issuperset(op.uses()):
            self.constants.update(op.results)
        if self.mask is None:
            new_op = copy_op(op, self.replacement, self.b.names)
        else:
            uses = {value: self.get(value) for value in op.uses()}
            masked = mask_unbatched_operands(self.b, self.mask, op, uses, self.constants)
            self.replacement.update(masked)
            new_op = copy_op(op, self.replacement, self.b.names)
            self.replacement.update(uses)
        self.b.append(new_op)
        for old in _definitions(op):
            self.original[self.replacement[old]] = old


def collective_axes(op: Op) -> Iterator[Axis]:
    """Yield the axes of a collective operation."""
    for attribute in ("axes", "source", "target"):
        yield from op.attrs.get(attribute, ())


def _definitions(op: Op) -> list[Value]:
    """Return the values that an operation and its blocks define."""
    result = list(op.results)
    for block in op.blocks:
        result += block.params
        for inner in block.ops:
            result += _definitions(inner)
    return result


def error(message: str, op: Op) -> VectorizeError:
    """Return a `VectorizeError` that names the line of the user's program."""
    return VectorizeError(f"{message}\n --> {op.loc}" if op.loc else message)
