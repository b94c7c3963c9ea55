"""Reading of element computations, such as those of reductions, as tensor computations."""

from collections.abc import Sequence

from lark import Token

from shardir.ir.module import Value
from shardir.ir.types import TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import (
    OperationReader,
    UnsupportedOperation,
    register_reader,
    rename_results,
)
from shardir.stablehlo.reading.types import TypeParser

Values = tuple[Value, ...]


class _VectorizedTypes(TypeParser):
    """Types in a region over elements: a scalar stands for a tensor."""

    def __init__(self, types: TypeParser, shape: tuple[int, ...]) -> None:
        super().__init__(types.source)
        self.shape = shape

    def _read(self, token: Token) -> TensorType:
        type = super()._read(token)
        if type.rank:
            raise UnsupportedOperation("its region computes with tensors")
        return type.with_shape(self.shape)


def inline_vectorized(
    call: OperationReader,
    block: records.BlockRecord,
    params: Sequence[Token],
    values: Sequence[Value],
) -> list[Value]:
    """Return the values that a block over elements returns for `values`, which have one shape.

    Captured scalars are broadcast.
    """
    reader = call.reader
    if reader.module.keep_opaque:
        raise UnsupportedOperation("it corresponds to several operations")
    shape = values[0].type.shape
    types, outer_values = reader.types, reader.values
    around = {
        name: _broadcast_scalar(call, value, shape)
        for name, value in _captured_values(call, block).items()
    }
    reader.types = _VectorizedTypes(types, shape)
    reader.values = outer_values | around
    for param, value in zip(params, values, strict=True):
        reader.values[str(param)] = value
    try:
        return reader.inline_block(block)
    finally:
        reader.types, reader.values = types, outer_values


def _captured_values(call: OperationReader, block: records.BlockRecord) -> dict[str, Value]:
    """Return the values that the operations of a block capture."""
    result: dict[str, Value] = {}
    for statement in block.statements:
        for part in statement.parts if isinstance(statement, records.OpRecord) else ():
            if isinstance(part, Token) and part.type == "VALUE" and str(part) in call.reader.values:
                result[str(part)] = call.reader.values[str(part)]
    return result


def _broadcast_scalar(call: OperationReader, value: Value, shape: tuple[int, ...]) -> Value:
    if value.type.rank:
        raise UnsupportedOperation("its region uses a tensor of the program around it")
    return call.emit_step("broadcast", value, dims=(), result=value.type.with_shape(shape))


@register_reader("map")
def _map(call: OperationReader) -> Values:
    """Read an elementwise computation over all dimensions."""
    (block,) = call.blocks
    params = [param.name for param in block.params]
    new_values = inline_vectorized(call, block, params, call.all_operands)
    return rename_results(call, new_values)
