"""Reading of StableHLO and CHLO operations that correspond to several IR operations."""

from math import inf, prod
from typing import Any

from shardir import (
    ops as ops,  # declares the operations
    ops as specs,
)
from shardir.ir.dtypes import (
    DTYPE_INFO,
    FLOATS,
    INTEGERS,
    SIGNED_BY_BITS,
    UNSIGNED_BY_BITS,
    precision_dtype,
)
from shardir.ir.module import Value
from shardir.ir.operation import Dense
from shardir.ir.types import TensorType
from shardir.stablehlo.reading.call import (
    READERS,
    OperationReader,
    ReadingRule,
    UnsupportedOperation,
    register_reader,
    rename_results,
)
from shardir.stablehlo.reading.shapes import gather_dims, move_index_vectors_last

Values = tuple[Value, ...]

_DOUBLE_WIDTH = {
    "i8": "i16", "i16": "i32", "i32": "i64", "u8": "u16", "u16": "u32", "u32": "u64",
}  # fmt: skip


def splat(call: OperationReader, value: complex, like: TensorType) -> Value:
    """Return a broadcast scalar, which can be sharded without communication."""
    scalar = call.emit_step("constant", value=value, result=like.with_shape(()))
    return call.emit_step("broadcast", scalar, dims=(), result=like) if like.rank else scalar


# Elementwise


@register_reader("chlo.square")
def _square(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    return call.emit("mul", x, x)


@register_reader("chlo.is_inf")
def _is_inf(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    return call.emit("eq", call.emit_step("abs", x), splat(call, inf, x.type))


@register_reader("chlo.is_pos_inf")
def _is_pos_inf(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    return call.emit("eq", x, splat(call, inf, x.type))


@register_reader("chlo.is_neg_inf")
def _is_neg_inf(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    return call.emit("eq", x, splat(call, -inf, x.type))


@register_reader("chlo.mulhi")
def _mulhi(call: OperationReader) -> Values:
    """Read the upper half of a product, computed in twice as many bits."""
    both = call.take_operands(2)
    type = both[0].type
    if type.dtype not in _DOUBLE_WIDTH:
        raise UnsupportedOperation(f"there is no type for the product of {type.dtype}")
    wide = type.with_dtype(_DOUBLE_WIDTH[type.dtype])
    x, y = (call.emit_step("convert", value, result=wide) for value in both)
    width = splat(call, DTYPE_INFO[type.dtype].bits, wide)
    return call.emit(
        "convert", call.emit_step("shift_right_logical", call.emit_step("mul", x, y), width)
    )


@register_reader("round_nearest_afz")
def _round_away_from_zero(call: OperationReader) -> Values:
    """Read a rounding half away from zero, which preserves the sign, also of zero."""
    (x,) = call.take_operands(1)
    size = call.emit_step("abs", x)
    floor = call.emit_step("floor", size)
    half = call.emit_step("ge", call.emit_step("sub", size, floor), splat(call, 0.5, x.type))
    more = call.emit_step("add", floor, splat(call, 1.0, x.type))
    rounded = call.emit_step("select", half, more, floor)
    zero = splat(call, 0.0, x.type)
    signed = call.emit_step(
        "select", call.emit_step("lt", x, zero), call.emit_step("neg", rounded), rounded
    )
    return call.emit("select", call.emit_step("eq", x, zero), x, signed)


@register_reader("reduce_precision")
def _reduce_precision(call: OperationReader) -> Values:
    """Round the bits to nearest even; out-of-range exponents become infinity or zero."""
    (x,) = call.take_operands(1)
    exponent, mantissa = _format(call)
    if x.type.dtype not in FLOATS:
        raise call.fail(f"reduce_precision does not apply to {x.type}")
    if (wide := precision_dtype(x.type.dtype)) != x.type.dtype:
        x = call.emit_step("convert", x, result=x.type.with_dtype(wide))
    info = DTYPE_INFO[x.type.dtype]
    bits_of_exponent, bits_of_mantissa = info.exponent_bits, info.mantissa_bits
    word = x.type.with_dtype(UNSIGNED_BY_BITS[info.bits])
    sign_bit = 1 << (info.bits - 1)
    exponent_mask = ((1 << bits_of_exponent) - 1) << bits_of_mantissa
    bits = call.emit_step("bitcast", x, result=word)

    def number(value: int) -> Value:
        return splat(call, value, word)

    if mantissa < bits_of_mantissa:
        gone = bits_of_mantissa - mantissa
        last = call.emit_step("shift_right_logical", bits, number(gone))
        odd = call.emit_step("and", last, number(1))
        bias = call.emit_step("add", odd, number((1 << (gone - 1)) - 1))
        rounded = call.emit_step("add", bits, bias)
        bits = call.emit_step("and", rounded, number((sign_bit << 1) - (1 << gone)))
    if exponent < bits_of_exponent:
        bias_now = (1 << (bits_of_exponent - 1)) - 1
        bias_then = (1 << (exponent - 1)) - 1
        top = number((bias_now + bias_then) << bits_of_mantissa)
        bottom = number((bias_now - bias_then) << bits_of_mantissa)
        power = call.emit_step("and", bits, number(exponent_mask))
        sign = call.emit_step("and", bits, number(sign_bit))
        infinite = call.emit_step("or", sign, number(exponent_mask))
        bits = call.emit_step("select", call.emit_step("gt", power, top), infinite, bits)
        bits = call.emit_step("select", call.emit_step("le", power, bottom), sign, bits)
    result = call.emit_step("bitcast", bits, result=x.type)
    undefined = x if mantissa else splat(call, inf, x.type)
    is_nan = call.emit_step("ne", x, x)
    if x.type == call.result:
        return call.emit("select", is_nan, undefined, result)
    return call.emit("convert", call.emit_step("select", is_nan, undefined, result))


def _format(call: OperationReader) -> tuple[int, int]:
    """Return the bits of exponent and mantissa: `format = e5m10`, or two attributes."""
    if not call.has("format"):
        return call.integer("exponent_bits"), call.integer("mantissa_bits")
    text = str(call.attr("format"))
    exponent, _, mantissa = text.removeprefix("e").partition("m")
    if (
        not (text.startswith("e") and exponent.isdecimal() and mantissa.isdecimal())
        or len(text) > 8
    ):
        raise call.fail("a format is written as e5m10")
    return int(exponent), int(mantissa)


def to_total_order(call: OperationReader, x: Value) -> Value:
    """Return integers that are ordered as floats in total order: -NaN, ..., -0, 0, ..., NaN."""
    if x.type.dtype not in FLOATS:
        return x
    width = DTYPE_INFO[x.type.dtype].bits
    word = x.type.with_dtype(SIGNED_BY_BITS[width])
    bits = call.emit_step("bitcast", x, result=word)
    negative = call.emit_step("shift_right_arithmetic", bits, splat(call, width - 1, word))
    others = call.emit_step("and", negative, splat(call, (1 << (width - 1)) - 1, word))
    return call.emit_step("xor", bits, others)


# Constants


@register_reader("chlo.constant")
def _constant(call: OperationReader) -> Values:
    return READERS["stablehlo.constant"](call)


@register_reader("chlo.constant_like")
def _constant_like(call: OperationReader) -> Values:
    value = call.attr("value")
    text = str(getattr(value, "value", value))
    dtype = call.result.dtype
    try:
        number = int(text) if dtype in INTEGERS else float(text)
    except ValueError:
        raise UnsupportedOperation("its constant has an unknown form") from None
    return call.emit("constant", value=number)


# Operations with implicit broadcasting

_BROADCASTING_OPERATIONS = (
    "add", "and", "atan2", "compare", "complex", "divide", "maximum", "minimum", "multiply", "or",
    "power", "remainder", "select", "shift_left", "shift_right_arithmetic", "shift_right_logical",
    "subtract", "xor",
)  # fmt: skip


def broadcasting_rule(operation: str) -> ReadingRule:
    """Return the rule of an operation whose operands are broadcast to the shape of its result."""

    def rule(call: OperationReader) -> Values:
        shape = call.result.shape
        stated = call.integers("broadcast_dimensions", default=())
        call.operands[:] = [
            _broadcast(call, x, shape, stated, alone=len(call.operands) == 2) for x in call.operands
        ]
        return READERS[operation](call)

    return rule


def _broadcast(
    call: OperationReader, x: Value, shape: tuple[int, ...], stated: tuple[int, ...], *, alone: bool
) -> Value:
    if x.type.shape == shape or (x.type.rank == 0 and not alone):
        return x  # The predicate of a select may remain a scalar.
    dims = stated if len(stated) == x.type.rank else ()
    if not dims:
        dims = tuple(range(len(shape) - x.type.rank, len(shape)))
    return call.emit_step("broadcast", x, dims=dims, result=x.type.with_shape(shape))


for _name in _BROADCASTING_OPERATIONS:
    READERS[f"chlo.broadcast_{_name}"] = broadcasting_rule(f"stablehlo.{_name}")
READERS["chlo.broadcast_next_after"] = broadcasting_rule("chlo.next_after")


# Shapes as operands, if the result types state them


@register_reader("dynamic_broadcast_in_dim")
def _dynamic_broadcast(call: OperationReader) -> Values:
    x, _ = call.take_operands(2)
    call.operands[:] = [x]
    return READERS["stablehlo.broadcast_in_dim"](call)


@register_reader("dynamic_reshape")
def _dynamic_reshape(call: OperationReader) -> Values:
    x, _ = call.take_operands(2)
    return call.emit("reshape", x)


@register_reader("dynamic_iota")
def _dynamic_iota(call: OperationReader) -> Values:
    return call.emit("iota", dim=call.integer("dim", "iota_dimension"))


def _numbers(call: OperationReader, value: Value) -> tuple[int, ...]:
    """Return the elements of a constant vector."""
    maker = call.reader.maker_of(value)
    constant = maker.attrs["value"] if maker is not None and maker.spec is specs.constant else None
    if isinstance(constant, Dense):
        return tuple(int(number) for number in constant.array.reshape(-1))
    if constant is None:
        raise UnsupportedOperation("its operand is not a constant")
    return (int(constant),) * value.type.size


@register_reader("dynamic_pad")
def _dynamic_pad(call: OperationReader) -> Values:
    x, value, low, high, interior = call.take_operands(5)
    amounts = [_numbers(call, each) for each in (low, high, interior)]
    return call.emit("pad", x, value, low=amounts[0], high=amounts[1], interior=amounts[2])


@register_reader("real_dynamic_slice")
def _real_dynamic_slice(call: OperationReader) -> Values:
    x, starts, _, strides = call.take_operands(4)
    return call.emit("slice", x, starts=_numbers(call, starts), strides=_numbers(call, strides))


@register_reader("dynamic_gather")
def _dynamic_gather(call: OperationReader) -> Values:
    x, indices, sizes = call.take_operands(3)
    numbers = gather_dims(call)
    vector = numbers.pop("index_vector_dim")
    _numbers(call, sizes)  # The result type has these sizes.
    return call.emit("gather", x, move_index_vectors_last(call, indices, vector), **numbers)


@register_reader("get_dimension_size")
def _dimension_size(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    return call.emit("constant", value=x.type.shape[call.dimension(x.type, "dim", "dimension")])


# Contractions and lookups of older versions


@register_reader("einsum")
def _einsum(call: OperationReader) -> Values:
    config = call.types.string(call.attr("einsum_config", "config")).replace(" ", "")
    return call.emit("dot", *call.take_operands(2), dims=config)


@register_reader("unary_einsum")
def _unary_einsum(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    config = call.types.string(call.attr("einsum_config", "config")).replace(" ", "")
    before, _, after = config.partition("->")
    if len(set(before)) != len(before) or len(before) != x.type.rank or not {*after} <= {*before}:
        raise UnsupportedOperation("it has a letter twice")
    summed = tuple(d for d, letter in enumerate(before) if letter not in after)
    remaining_letters = [letter for letter in before if letter in after]
    total = call.emit_step("sum", x, dims=summed) if summed else x
    return call.emit(
        "transpose", total, perm=tuple(remaining_letters.index(letter) for letter in after)
    )


@register_reader("torch_index_select")
def _index_select(call: OperationReader) -> Values:
    """Read rows of a dimension; the first dimensions of both operands may be batch dimensions."""
    x, indices = call.take_operands(2)
    dim, batch = call.integer("dim"), call.integer("batch_dims", default=0)
    rank = indices.type.rank
    if batch > min(dim, rank):
        raise call.fail("batches are dimensions in front of the one that is looked up")
    pointers = call.emit_step(
        "reshape", indices, result=indices.type.with_shape((*indices.type.shape, 1))
    )
    # The result has the dimensions of x before `dim`, those of the indices, and the rest.
    front = range(batch, dim)
    behind = range(dim + rank - batch, dim + rank - batch + x.type.rank - dim - 1)
    batches = tuple(range(batch))
    more: dict[str, Any] = (
        {"operand_batching_dims": batches, "indices_batching_dims": batches} if batch else {}
    )
    return call.emit(
        "gather", x, pointers,
        offset_dims=(*front, *behind), collapsed_dims=(dim,), start_index_map=(dim,), **more,
    )  # fmt: skip


# Normalization


def _broadcast_along(call: OperationReader, vector: Value, like: TensorType, dim: int) -> Value:
    return call.emit_step("broadcast", vector, dims=(dim,), result=like)


def _other_dims(x: TensorType, dim: int) -> tuple[int, ...]:
    return tuple(d for d in range(x.rank) if d != dim)


def _normalize(
    call: OperationReader, x: Value, mean: Value, variance: Value, dim: int
) -> tuple[Value, Value]:
    """Return `(x - mean) / sqrt(variance + epsilon)`, and the root as a vector."""
    epsilon = _float(call, "epsilon")
    root = call.emit_step(
        "sqrt", call.emit_step("add", variance, splat(call, epsilon, variance.type))
    )
    centred = call.emit_step("sub", x, _broadcast_along(call, mean, x.type, dim))
    return call.emit_step("div", centred, _broadcast_along(call, root, x.type, dim)), root


def _float(call: OperationReader, name: str) -> float:
    value = call.attr(name)
    try:
        return float(str(getattr(value, "value", value)))
    except ValueError:
        raise call.fail(f"{name} is a number") from None


def _mean(call: OperationReader, x: Value, dim: int) -> Value:
    total = call.emit_step("sum", x, dims=_other_dims(x.type, dim))
    count = prod(x.type.shape[d] for d in _other_dims(x.type, dim))
    return call.emit_step("div", total, splat(call, float(count), total.type))


@register_reader("batch_norm_inference")
def _batch_norm_inference(call: OperationReader) -> Values:
    x, scale, offset, mean, variance = call.take_operands(5)
    dim = call.dimension(x.type, "feature_index")
    normal, _ = _normalize(call, x, mean, variance, dim)
    scaled = call.emit_step("mul", normal, _broadcast_along(call, scale, x.type, dim))
    return call.emit("add", scaled, _broadcast_along(call, offset, x.type, dim))


def _moments(call: OperationReader, x: Value, dim: int) -> tuple[Value, Value]:
    mean = _mean(call, x, dim)
    centred = call.emit_step("sub", x, _broadcast_along(call, mean, x.type, dim))
    return mean, _mean(call, call.emit_step("mul", centred, centred), dim)


@register_reader("batch_norm_training")
def _batch_norm_training(call: OperationReader) -> Values:
    x, scale, offset = call.take_operands(3)
    dim = call.dimension(x.type, "feature_index")
    mean, variance = _moments(call, x, dim)
    normal, _ = _normalize(call, x, mean, variance, dim)
    scaled = call.emit_step("mul", normal, _broadcast_along(call, scale, x.type, dim))
    normalized_output = call.emit_step("add", scaled, _broadcast_along(call, offset, x.type, dim))
    return rename_results(call, [normalized_output, mean, variance])


@register_reader("batch_norm_grad")
def _batch_norm_grad(call: OperationReader) -> Values:
    x, scale, mean, variance, gradient = call.take_operands(5)
    dim = call.dimension(x.type, "feature_index")
    normal, root = _normalize(call, x, mean, variance, dim)
    of_offset = call.emit_step("sum", gradient, dims=_other_dims(x.type, dim))
    product = call.emit_step("mul", gradient, normal)
    of_scale = call.emit_step("sum", product, dims=_other_dims(x.type, dim))
    mean_gradient = _broadcast_along(call, _mean(call, gradient, dim), x.type, dim)
    mean_product = _broadcast_along(call, _mean(call, product, dim), x.type, dim)
    inner = call.emit_step(
        "sub",
        call.emit_step("sub", gradient, mean_gradient),
        call.emit_step("mul", normal, mean_product),
    )
    factor = _broadcast_along(call, call.emit_step("div", scale, root), x.type, dim)
    return rename_results(call, [call.emit_step("mul", factor, inner), of_scale, of_offset])
