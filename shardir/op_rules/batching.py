"""Batching rules: adding one leading dimension to an operation.

`vectorize` adds a leading batch dimension to some values. An operation that uses such a value
becomes the same operation with one more factor, which maps to the first dimension of every batched
value. For elementwise operations that follows from their factors. Operations whose attributes name
dimensions declare these (`ShiftDims`); operations that need other changes declare a rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final, overload

from shardir.ir.builder import Builder
from shardir.ir.operation import Attr, Op, OpSpec, Value
from shardir.ir.types import TensorType

Values = Value | tuple[Value, ...]


@dataclass(frozen=True)
class BatchedOp:
    """One application of an operation that is batched `size` times.

    `op` is the operation without the new dimension; `batched` states which operands have it.
    """

    op: Op
    size: int
    batched: tuple[bool, ...]

    def type(self, type: TensorType) -> TensorType:
        """Return the type with the new dimension."""
        return type.with_shape((self.size, *type.shape))

    @property
    def results(self) -> tuple[TensorType, ...]:
        """The types of the results with the new dimension."""
        return tuple(self.type(value.type) for value in self.op.results)

    @property
    def emit_result(self) -> TensorType | tuple[TensorType, ...]:
        """The result type or types in the form that `Builder.emit` accepts."""
        results = self.results
        return results[0] if len(results) == 1 else results

    def batch_all(self, b: Builder, operands: Sequence[Value]) -> tuple[Value, ...]:
        """Return the operands, each with the new dimension."""
        pairs = zip(operands, self.batched, strict=True)
        return tuple(
            x if batched else broadcast_over_batch(b, x, self.size) for x, batched in pairs
        )


def broadcast_over_batch(b: Builder, x: Value, size: int) -> Value:
    """Return `x` broadcast along a new leading dimension."""
    why, b.why = b.why, "broadcast along the batch dimension"
    type = x.type.with_shape((size, *x.type.shape))
    result: Value = b.broadcast(x, dims=tuple(range(1, type.rank)), result=type)
    b.why = why
    return result


def broadcast_batch_scalars(b: Builder, x: Value, type: TensorType) -> Value:
    """Return `x`, one element per batch entry, broadcast to `type` along the other dimensions."""
    if x.type.shape == type.shape:
        return x
    result: Value = b.broadcast(x, dims=(0,), result=type.with_dtype(x.type.dtype))
    return result


def batch_elementwise(b: Builder, many: BatchedOp, *operands: Value, **_: object) -> Value:
    """Apply the batching rule of an operation whose factors map to all operands alike.

    Scalar operands stay scalars unless they are batched.
    """
    result = many.results[0]
    new_operands = []
    for x, old, batched in zip(operands, many.op.operands, many.batched, strict=True):
        if old.type.shape == result.shape[1:]:
            new_operands.append(x if batched else broadcast_over_batch(b, x, many.size))
        else:
            new_operands.append(broadcast_batch_scalars(b, x, result) if batched else x)
    result_value: Value = b.emit(
        many.op.spec, *new_operands, result=many.emit_result, **many.op.attrs
    )
    return result_value


@final
class ShiftDims:
    """The rule of an operation whose operands and results all get the new dimension.

    The attributes `names` hold dimension indices, which are incremented. The attributes in `ahead`
    have one entry per dimension and get the given entry for the new one.
    """

    def __init__(self, *names: str, **ahead: object) -> None:
        self.names, self._ahead = names, ahead

    def shift(self, attrs: Mapping[str, Attr], count: int = 1) -> dict[str, Attr]:
        """Return the attributes of the operation with `count` new leading dimensions."""
        shifted = dict(attrs)
        for _ in range(count):
            for name in self.names:
                if name in shifted:
                    shifted[name] = increment_dims(shifted[name])
            for name, entry in self._ahead.items():
                shifted[name] = (entry, *shifted[name])
        return shifted

    def __call__(self, b: Builder, many: BatchedOp, *operands: Value, **_: object) -> Values:
        result: Values = b.emit(
            many.op.spec,
            *many.batch_all(b, operands),
            result=many.emit_result,
            **self.shift(many.op.attrs),
        )
        return result


def shift_attributes(spec: OpSpec, attrs: Mapping[str, Attr], count: int) -> dict[str, Attr]:
    """Return the attributes of an operation whose values have `count` new leading dimensions.

    The batching rule of the operation declares which attributes hold dimension indices.
    """
    return spec.batch.shift(attrs, count) if isinstance(spec.batch, ShiftDims) else dict(attrs)


def dimension_attributes(spec: OpSpec) -> tuple[str, ...]:
    """Return the attributes that hold dimension indices, which the batching rule declares."""
    return spec.batch.names if isinstance(spec.batch, ShiftDims) else ()


@overload
def increment_dims(dims: int) -> int: ...
@overload
def increment_dims(dims: tuple[int, ...]) -> tuple[int, ...]: ...
def increment_dims(dims: int | tuple[int, ...]) -> int | tuple[int, ...]:
    """Return a dimension index, or a tuple of them, incremented by one."""
    return dims + 1 if isinstance(dims, int) else tuple(dim + 1 for dim in dims)
