"""Reading of element computations, such as those of reductions, as tensor computations."""

from collections.abc import Sequence

from lark import Token

from shardir.ir import Value
from shardir.stablehlo import reader_records as records
from shardir.stablehlo.reader_call import Call, Unsupported, reads
from shardir.stablehlo.reader_types import Types
from shardir.types import TensorType

Values = tuple[Value, ...]


class _Lifted(Types):
    """Types in a region over elements: a scalar stands for a tensor."""

    def __init__(self, types: Types, shape: tuple[int, ...]) -> None:
        super().__init__(types.source)
        self.shape = shape

    def _read(self, token: Token) -> TensorType:
        type = super()._read(token)
        if type.rank:
            raise Unsupported("its region computes with tensors")
        return type.with_shape(self.shape)


def lifted(
    call: Call, block: records.Block, params: Sequence[Token], values: Sequence[Value]
) -> list[Value]:
    """Return the values that a block over elements returns for `values`, which have one shape.

    Captured scalars are broadcast.
    """
    reader = call.reader
    if reader.module.whole:
        raise Unsupported("it corresponds to several operations")
    shape = values[0].type.shape
    types, known = reader.types, reader.values
    around = {name: _spread(call, value, shape) for name, value in _captured(call, block).items()}
    reader.types = _Lifted(types, shape)
    reader.values = known | around
    for param, value in zip(params, values, strict=True):
        reader.values[str(param)] = value
    try:
        return reader.inline(block)
    finally:
        reader.types, reader.values = types, known


def _captured(call: Call, block: records.Block) -> dict[str, Value]:
    """Return the values that the operations of a block capture."""
    found: dict[str, Value] = {}
    for statement in block.statements:
        for part in statement.parts if isinstance(statement, records.Op) else ():
            if isinstance(part, Token) and part.type == "VALUE" and str(part) in call.reader.values:
                found[str(part)] = call.reader.values[str(part)]
    return found


def _spread(call: Call, value: Value, shape: tuple[int, ...]) -> Value:
    if value.type.rank:
        raise Unsupported("its region uses a tensor of the program around it")
    return call.step("broadcast", value, dims=(), result=value.type.with_shape(shape))


@reads("map")
def _map(call: Call) -> Values:
    """Read an elementwise computation over all dimensions."""
    (block,) = call.blocks
    params = [param.name for param in block.params]
    made = lifted(call, block, params, call.all_operands)
    if [value.type for value in made] != call.results:
        raise call.fail("map does not return what it states")
    results = call.define(value.type for value in made)
    call.reader.rename(dict(zip(made, results, strict=True)))
    return results
