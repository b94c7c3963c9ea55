"""Writing of control flow."""

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.ops.control_flow.custom_partitioning import body_of
from shardir.stablehlo.writing.attributes import format_array, format_literal
from shardir.stablehlo.writing.writer import WRITERS, MlirWriter, TypedName, WrittenRegion

COUNTER = TensorType((), "i32")


@WRITERS.rule(OPS["while"])
def _while(w: MlirWriter, op: Op) -> None:
    """Write a while loop; XLA hoists loop-invariant values and fails on their shardings."""
    body = op.blocks[1]
    still = any(x is y for x, y in zip(body.params, body.returns, strict=True))
    regions = [_block(w, block) for block in op.blocks]
    w.write_op(op, "stablehlo.while", regions=regions, annotate=not (w.for_xla and still))


@WRITERS.rule(OPS["case"])
def _case(w: MlirWriter, op: Op) -> None:
    (value,) = op.operands
    index: TypedName = (w.name(value), value.type)
    if value.type.dtype == "bool":
        index = w.write_step("stablehlo.convert", [index], COUNTER)
    regions = [_block(w, block) for block in op.blocks]
    w.write_op(op, "stablehlo.case", operands=[index], regions=regions)


@WRITERS.rule(
    OPS["checkpoint"], OPS["custom-jvp"], OPS["custom-vjp"], OPS["fused"], OPS["fused_products"]
)
def _inline_first_block(w: MlirWriter, op: Op) -> None:
    """Write the first block inline; derivative rules are dropped."""
    _inline(w, op, op.blocks[0])


@WRITERS.rule(OPS["custom-partitioning"])
def _inline_body(w: MlirWriter, op: Op) -> None:
    """Write the function itself inline, which other tools partition by their own rules."""
    _inline(w, op, body_of(op))


def _inline(w: MlirWriter, op: Op, block: Block) -> None:
    for param, operand in zip(block.params, op.operands, strict=True):
        w.alias(param, w.name(operand))
    for result, value in zip(op.results, w.block(block), strict=True):
        w.alias(result, w.name(value))


def _block(w: MlirWriter, block: Block) -> WrittenRegion:
    return w.region(block.params, lambda: _typed_values(w, w.block(block)))


def _typed_values(w: MlirWriter, values: tuple[Value, ...]) -> list[TypedName]:
    return [(w.name(value), value.type) for value in values]


@WRITERS.rule(OPS["scan"])
def _scan(w: MlirWriter, op: Op) -> None:
    """Write a scan as a while loop with a counter, dynamic slices and slice updates."""
    (body,) = op.blocks
    carries, length = op.attrs["carries"], op.attrs["length"]
    inits = [(w.name(v), v.type) for v in op.operands[:carries]]
    stacked = [(w.name(v), v.type) for v in op.operands[carries:]]
    empty = [w.constant(0, value.type) for value in op.results[carries:]]
    names = ["counter", *(v.name for v in op.results)]
    types = [COUNTER, *(type for _, type in inits), *(type for _, type in empty)]
    last = w.constant(length - 1, COUNTER)
    limit = w.constant(length, COUNTER)

    def condition() -> list[TypedName]:
        attrs = {"comparison_direction": "#stablehlo<comparison_direction LT>"}
        yes = COUNTER.with_dtype("bool")
        return [w.write_step("stablehlo.compare", [w.typed_name(tested[0]), limit], yes, attrs)]

    def step() -> list[TypedName]:
        counter = w.typed_name(carried[0])
        at = w.write_step("stablehlo.subtract", [last, counter], COUNTER)
        at = at if op.attrs.get("reverse", False) else counter
        slices = [_slice_at(w, x, at) for x in stacked]
        for param, value in zip(body.params[:carries], carried[1:], strict=False):
            w.alias(param, w.name(value))
        for param, (name, _) in zip(body.params[carries:], slices, strict=True):
            w.alias(param, name)
        returned = _typed_values(w, w.block(body))
        outputs = [w.typed_name(value) for value in carried[1 + carries :]]
        outs = [
            _update_slice(w, y, out, at) for y, out in zip(outputs, returned[carries:], strict=True)
        ]
        one = w.constant(1, COUNTER)
        return [w.write_step("stablehlo.add", [counter, one], COUNTER), *returned[:carries], *outs]

    tested = [Value(type, name) for type, name in zip(types, names, strict=True)]
    carried = [Value(type, name) for type, name in zip(types, names, strict=True)]
    w.write_op(
        op,
        "stablehlo.while",
        operands=[w.constant(0, COUNTER), *inits, *empty],
        regions=[w.region(tested, condition), w.region(carried, step)],
        hidden=[COUNTER],
    )


def _start(w: MlirWriter, at: TypedName, rank: int) -> list[TypedName]:
    zero = w.write_step("stablehlo.constant", [], COUNTER, {"value": format_literal(0, COUNTER)})
    return [at, *[zero] * (rank - 1)]


def _slice_at(w: MlirWriter, x: TypedName, at: TypedName) -> TypedName:
    _, type = x
    one = type.with_shape((1, *type.shape[1:]))
    attrs = {"slice_sizes": format_array(one.shape)}
    sliced = w.write_step("stablehlo.dynamic_slice", [x, *_start(w, at, type.rank)], one, attrs)
    return w.write_step("stablehlo.reshape", [sliced], type.with_shape(type.shape[1:]))


def _update_slice(w: MlirWriter, operand: TypedName, piece: TypedName, at: TypedName) -> TypedName:
    _, type = operand
    one = type.with_shape((1, *type.shape[1:]))
    piece = w.write_step("stablehlo.reshape", [piece], one)
    return w.write_step(
        "stablehlo.dynamic_update_slice", [operand, piece, *_start(w, at, type.rank)], type
    )
