"""Writing of operations that correspond to several StableHLO operations.

The last of these gets the name, the sharding and the location.
"""

from math import log

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ir.types import COMPLEX, REAL_OF, UNSIGNED, TensorType
from shardir.stablehlo.writing.attributes import format_array, format_int_list, format_integer
from shardir.stablehlo.writing.regions import reduce_over
from shardir.stablehlo.writing.writer import WRITERS, MlirWriter, TypedName


@WRITERS.rule(OPS["dot"])
def _dot(w: MlirWriter, op: Op) -> None:
    """Sum over letters that only one operand has, contract, and transpose."""
    terms, output = op.attrs["dims"].split("->")
    parts, letters = [], []
    for value, term, other in zip(
        op.operands, terms.split(","), reversed(terms.split(",")), strict=True
    ):
        alone = [d for d, c in enumerate(term) if c not in other and c not in output]
        part = (w.name(value), value.type)
        parts.append(reduce_over(w, part, alone, "add") if alone else part)
        letters.append("".join(c for c in term if c in other or c in output))
    x, y = letters
    batch = [c for c in x if c in y and c in output]
    summed = [c for c in x if c in y and c not in output]
    numbers = {
        "lhs_batching_dimensions": [x.index(c) for c in batch],
        "rhs_batching_dimensions": [y.index(c) for c in batch],
        "lhs_contracting_dimensions": [x.index(c) for c in summed],
        "rhs_contracting_dimensions": [y.index(c) for c in summed],
    }
    fields = ", ".join(f"{key} = {format_int_list(dims)}" for key, dims in numbers.items())
    attrs = {"dot_dimension_numbers": f"#stablehlo.dot<{fields}>", **w.full_precision()}
    plain_output = [*batch, *(c for c in x + y if c not in batch and c not in summed)]
    if plain_output == list(output):
        w.write_op(op, "stablehlo.dot_general", attrs, operands=parts)
        return
    type = op.result.type
    sizes = dict(zip(output, type.shape, strict=True))
    plain = type.with_shape([sizes[c] for c in plain_output])
    product = w.write_step("stablehlo.dot_general", parts, plain, attrs)
    perm = format_array(plain_output.index(c) for c in output)
    w.write_op(op, "stablehlo.transpose", {"permutation": perm}, operands=[product])


@WRITERS.rule(OPS["abs"])
def _abs(w: MlirWriter, op: Op) -> None:
    """Convert unsigned integers, for which StableHLO has no `abs`."""
    unsigned = op.result.type.dtype in UNSIGNED
    w.write_op(op, "stablehlo.convert" if unsigned else "stablehlo.abs")


@WRITERS.rule(OPS["sign"])
def _sign(w: MlirWriter, op: Op) -> None:
    if op.result.type.dtype not in UNSIGNED:
        w.write_op(op, "stablehlo.sign")
        return
    one = _splat(w, 1, op.result.type)
    w.write_op(op, "stablehlo.minimum", operands=[_operand(w, op), one])


@WRITERS.rule(OPS["is_finite"])
def _is_finite(w: MlirWriter, op: Op) -> None:
    """Test both parts of a complex number."""
    x = _operand(w, op)
    if x[1].dtype not in COMPLEX:
        w.write_op(op, "stablehlo.is_finite")
        return
    part = x[1].with_dtype(REAL_OF[x[1].dtype])
    finite = [
        w.write_step(
            "stablehlo.is_finite", [w.write_step(f"stablehlo.{name}", [x], part)], op.result.type
        )
        for name in ("real", "imag")
    ]
    w.write_op(op, "stablehlo.and", operands=finite)


@WRITERS.rule(OPS["exp2"])
def _exp2(w: MlirWriter, op: Op) -> None:
    scaled = _scale(w, "multiply", _operand(w, op), log(2))
    w.write_op(op, "stablehlo.exponential", operands=[scaled])


@WRITERS.rule(OPS["log2"])
def _log2(w: MlirWriter, op: Op) -> None:
    type = op.result.type
    natural = w.write_step("stablehlo.log", [_operand(w, op)], type)
    if type.dtype in COMPLEX:
        w.write_op(op, "stablehlo.complex", operands=_scale_parts(w, "divide", natural, log(2)))
    else:
        w.write_op(op, "stablehlo.divide", operands=[natural, _splat(w, log(2), type)])


def _scale(w: MlirWriter, name: str, x: TypedName, number: float) -> TypedName:
    """Return `x` multiplied with a number or divided by it."""
    type = x[1]
    if type.dtype in COMPLEX:
        return w.write_step("stablehlo.complex", _scale_parts(w, name, x, number), type)
    return w.write_step(f"stablehlo.{name}", [x, _splat(w, number, type)], type)


def _scale_parts(w: MlirWriter, name: str, x: TypedName, number: float) -> list[TypedName]:
    """Return the scaled parts of a complex value; a product of complex numbers has NaN where one
    part is infinite.
    """
    part = x[1].with_dtype(REAL_OF[x[1].dtype])
    return [
        _scale(w, name, w.write_step(f"stablehlo.{each}", [x], part), number)
        for each in ("real", "imag")
    ]


def _operand(w: MlirWriter, op: Op) -> TypedName:
    (value,) = op.operands
    return w.name(value), value.type


def _splat(w: MlirWriter, value: float, type: TensorType) -> TypedName:
    """Return a broadcast scalar, which Shardy can shard without communication."""
    scalar = w.constant(value, type.with_shape(()))
    return w.write_step(
        "stablehlo.broadcast_in_dim", [scalar], type, {"broadcast_dimensions": format_array(())}
    )


@WRITERS.rule(OPS["bitcast"])
def _bitcast(w: MlirWriter, op: Op) -> None:
    """Write a bitcast, in which the words of a key are exchanged (highest first).

    The 64 bits are rotated: IREE cannot compile `reverse` of unsigned integers.
    """
    (x,) = op.operands
    result = op.result.type
    if x.type.dtype == result.dtype or "key" not in (x.type.dtype, result.dtype):
        w.write_op(op, "stablehlo.bitcast_convert")
    elif x.type.dtype == "key":
        name, type = _operand(w, op)
        lowest_first = w.write_step("stablehlo.or", _shifted_words(w, name, type), type)
        w.write_op(op, "stablehlo.bitcast_convert", operands=[lowest_first])
    else:
        bits = w.write_step("stablehlo.bitcast_convert", [_operand(w, op)], result)
        w.write_op(op, "stablehlo.or", operands=_shifted_words(w, *bits))


def _shifted_words(w: MlirWriter, name: str, type: TensorType) -> list[TypedName]:
    """Write the lower word in the place of the higher one, and the higher in that of the lower."""
    width = _splat(w, 32, type.with_dtype("u64"))
    return [
        w.write_step(f"stablehlo.{shift}", [(name, type), width], type)
        for shift in ("shift_left", "shift_right_logical")
    ]


@WRITERS.rule(OPS["roll"])
def _roll(w: MlirWriter, op: Op) -> None:
    """Concatenate the last elements and the others."""
    (x,), dim, shift = op.operands, op.attrs["dim"], op.attrs["shift"]
    rest, ones = x.type.shape[dim] - shift, [1] * x.type.rank
    parts = []
    for start, stop in ((rest, rest + shift), (0, rest)):
        starts = [start if d == dim else 0 for d in range(x.type.rank)]
        stops = [stop if d == dim else n for d, n in enumerate(x.type.shape)]
        words = {
            "start_indices": format_array(starts),
            "limit_indices": format_array(stops),
            "strides": format_array(ones),
        }
        type = x.type.with_shape([b - a for a, b in zip(starts, stops, strict=True)])
        parts.append(w.write_step("stablehlo.slice", [(w.name(x), x.type)], type, words))
    w.write_op(op, "stablehlo.concatenate", {"dimension": format_integer(dim)}, operands=parts)
