"""Arithmetic on values while a program is read, for operations that become long computations.

`Tensor` has the operators of Python, and emits an operation for each. `tensors_of` wraps the values
of an operation that is being read; `repeat` emits a loop with a constant trip count.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shardir.ir.dtypes import COMPLEX
from shardir.ir.module import Block, Value
from shardir.ir.operation import Attr
from shardir.ir.types import TensorType
from shardir.stablehlo.reading.call import OperationReader


class Emit(Protocol):
    """A function that emits an operation with one result."""

    def __call__(
        self, name: str, *operands: Value, result: TensorType | None = None, **attrs: Attr
    ) -> Value: ...


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value with the operators of Python; numbers are broadcast to its type."""

    value: Value
    emit: Emit

    @property
    def type(self) -> TensorType:
        return self.value.type

    def apply(self, name: str, *others: object, result: TensorType | None = None,
              **attrs: Attr) -> "Tensor":  # fmt: skip
        """Return the result of an operation on this tensor and others, which may be numbers."""
        values = [self.coerce(x).value for x in others]
        return Tensor(self.emit(name, self.value, *values, result=result, **attrs), self.emit)

    def coerce(self, x: Any) -> "Tensor":
        """Return a number as a tensor of this type; tensors are unchanged."""
        return x if isinstance(x, Tensor) else full(self.emit, x, self.type)

    def convert(self, dtype: str) -> "Tensor":
        if dtype == self.type.dtype:
            return self
        return self.apply("convert", result=self.type.with_dtype(dtype))

    def reshape(self, shape: Sequence[int]) -> "Tensor":
        return self.apply("reshape", result=self.type.with_shape(tuple(shape)))

    def broadcast(self, shape: Sequence[int], dims: Sequence[int]) -> "Tensor":
        result = self.type.with_shape(tuple(shape))
        return self.apply("broadcast", dims=tuple(dims), result=result)

    def slice_at(self, starts: Sequence["Tensor | int"], sizes: Sequence[int]) -> "Tensor":
        """Return the slice that starts at these indices, which may be tensors."""
        return self.apply(
            "dynamic_slice",
            *(index_tensor(self.emit, x) for x in starts),
            result=self.type.with_shape(tuple(sizes)),
        )

    def update_at(self, new: "Tensor", starts: Sequence["Tensor | int"]) -> "Tensor":
        """Return this tensor with the slice that starts at these indices replaced."""
        places = (index_tensor(self.emit, x) for x in starts)
        return self.apply("dynamic_update_slice", new, *places)

    def where(self, x: Any, y: Any) -> "Tensor":
        """Return x where this tensor is true, and y elsewhere; one of them is a tensor."""
        like = x if isinstance(x, Tensor) else y
        return self.apply("select", like.coerce(x), like.coerce(y))

    def iota(self, dim: int, dtype: str = "i32") -> "Tensor":
        """Return the indices along a dimension, for the shape of this tensor."""
        return Tensor(self.emit("iota", dim=dim, result=self.type.with_dtype(dtype)), self.emit)

    def is_complex(self) -> bool:
        return self.type.dtype in COMPLEX

    def __add__(self, other: Any) -> "Tensor":
        return self.apply("add", other)

    def __sub__(self, other: Any) -> "Tensor":
        return self.apply("sub", other)

    def __rsub__(self, other: object) -> "Tensor":
        return self.coerce(other) - self

    def __mul__(self, other: object) -> "Tensor":
        return self.apply("mul", other)

    __rmul__ = __mul__
    __radd__ = __add__

    def __truediv__(self, other: object) -> "Tensor":
        return self.apply("div", other)

    def __rtruediv__(self, other: object) -> "Tensor":
        return self.coerce(other) / self

    def __neg__(self) -> "Tensor":
        return self.apply("neg")

    def __and__(self, other: object) -> "Tensor":
        return self.apply("and", other)

    def __or__(self, other: object) -> "Tensor":
        return self.apply("or", other)

    def __xor__(self, other: object) -> "Tensor":
        return self.apply("xor", other)

    def __lt__(self, other: object) -> "Tensor":
        return self.apply("lt", other)

    def __le__(self, other: object) -> "Tensor":
        return self.apply("le", other)

    def __gt__(self, other: object) -> "Tensor":
        return self.apply("gt", other)

    def __ge__(self, other: object) -> "Tensor":
        return self.apply("ge", other)

    def equals(self, other: object) -> "Tensor":
        return self.apply("eq", other)

    def differs(self, other: object) -> "Tensor":
        return self.apply("ne", other)


def full(emit: Emit, number: complex, type: TensorType) -> Tensor:
    """Return a broadcast scalar, which can be sharded without communication."""
    scalar = emit("constant", value=number, result=type.with_shape(()))
    if type.rank:
        scalar = emit("broadcast", scalar, dims=(), result=type)
    return Tensor(scalar, emit)


def index_tensor(emit: Emit, index: Tensor | int) -> Tensor:
    """Return an index as a scalar tensor."""
    return index if isinstance(index, Tensor) else full(emit, index, TensorType((), "i32"))


def tensors_of(call: OperationReader, values: Sequence[Value]) -> list[Tensor]:
    """Return values as tensors whose operations are emitted in place of the call."""
    return [Tensor(value, call.emit_step) for value in values]


def repeat(
    call: OperationReader,
    count: int,
    inits: Sequence[Tensor],
    step: Callable[[Tensor, list[Tensor]], Sequence[Tensor]],
) -> list[Tensor]:
    """Return the values after `count` steps; a step maps its number and the values to new ones."""
    reader, number = call.reader, TensorType((), "i32")
    start = call.emit_step("constant", value=0, result=number)
    values = [start, *(x.value for x in inits)]

    def block(function: Callable[[list[Tensor]], Sequence[Tensor]]) -> Block:
        outer, reader.ops = reader.ops, []
        params = [Value(value.type, reader.names.fresh("")) for value in values]
        returns = function(tensors_of(call, params))
        ops, reader.ops = reader.ops, outer
        return Block(tuple(params), tuple(ops), tuple(x.value for x in returns))

    condition = block(lambda args: [args[0] < count])
    body = block(lambda args: [args[0] + 1, *step(args[0], args[1:])])
    results = tuple(Value(value.type, reader.names.fresh("")) for value in values)
    reader.append("while", tuple(values), results, {}, (condition, body), call.written.loc)
    return tensors_of(call, results[1:])
