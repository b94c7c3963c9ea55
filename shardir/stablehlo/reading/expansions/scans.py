"""Reading of `chlo.scan`: a loop over the slices of its inputs along any dimension.

The body takes the slices of the inputs and then the carries, and returns the slices of the outputs
and then the carries; the results have this order, too. `scan` has the carries first, and iterates
over dimension 0.
"""

from shardir.errors import count_noun
from shardir.ir.module import Block, Value
from shardir.stablehlo.reading.call import OperationReader, register_reader, rename_results

Values = tuple[Value, ...]


@register_reader("chlo.scan")
def _scan(call: OperationReader) -> Values:
    if len(call.blocks) != 1:
        raise call.fail(f"{call.name} has one body")
    (written,) = call.blocks
    body = call.reader.read_block(written, call.reader.params_of(written))
    if len(body.params) != len(call.operands):
        raise call.fail(f"{call.name} has {count_noun(len(call.operands), 'operand')}, and its "
        "body takes "
                        f"{len(body.params)}")  # fmt: skip
    # A carry has the type of its parameter, and an input has one more dimension.
    pairs = zip(call.operands, body.params, strict=True)
    count = sum(x.type.rank != param.type.rank for x, param in pairs)
    carries = len(call.operands) - count
    if not count or len(body.returns) < carries:
        raise call.fail(f"{call.name} takes inputs, and its body returns all {carries} carries")
    dim = call.dimension(call.operands[0].type, "dimension")
    stacked = [_move_dimension(call, x, dim, 0) for x in call.operands[:count]]
    outputs = len(body.returns) - carries
    operands = (*call.operands[count:], *stacked)
    block = Block(
        (*body.params[count:], *body.params[:count]),
        body.ops,
        (*body.returns[outputs:], *body.returns[:outputs]),
    )
    attrs = {
        "carries": carries,
        "length": stacked[0].type.shape[0],
        "reverse": call.has("is_reverse") and call.types.flag(call.attr("is_reverse")),
    }
    types = call.infer("scan", operands, (), (block,), attrs)
    results = tuple(Value(type, call.reader.names.fresh("")) for type in types)
    call.reader.append("scan", operands, results, attrs, (block,), call.written.loc)
    made = [_move_dimension(call, y, 0, dim) for y in results[carries:]]
    return rename_results(call, [*made, *results[:carries]])


def _move_dimension(call: OperationReader, x: Value, source: int, target: int) -> Value:
    if source == target:
        return x
    perm = [d for d in range(x.type.rank) if d != source]
    perm.insert(target, source)
    return call.emit_step("transpose", x, perm=tuple(perm))
