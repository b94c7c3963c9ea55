"""Reading of `dot` and `dot_general`, with their dtypes and algorithms.

`shardir.ops.contraction.product_dtypes` states how XLA computes a product whose result or algorithm
has other dtypes than its operands.
"""

import re
from string import ascii_letters

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Value
from shardir.ops.contraction.product_dtypes import (
    ALGORITHMS,
    AlgorithmDtypes,
    algorithm_dtypes,
    product_dtypes,
)
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import (
    OperationReader,
    UnsupportedOperation,
    register_reader,
)
from shardir.stablehlo.reading.types import first_token

Values = tuple[Value, ...]
Ints = tuple[int, ...]

_FIELD = re.compile(r"(\w+)\s*=\s*(\w+)")


@register_reader("dot_general", "dot")
def _dot(call: OperationReader) -> Values:
    x, y = call.take_operands(2)
    return _emit_product(call, x, y, contraction_dims(call, x.type.shape, y.type.shape))


def contraction_dims(call: OperationReader, x: Ints, y: Ints) -> str:
    """Return the einsum of operands of two shapes; batch letters come first in the result."""
    of_x, of_y = _plain_dims(call, x, y) if call.name == "stablehlo.dot" else _stated_dims(call)
    for shape, dims in ((x, of_x), (y, of_y)):
        named = (*dims[0], *dims[1])
        if len(set(named)) != len(named) or any(d >= len(shape) or d < 0 for d in named):
            raise call.fail(f"these dimensions are not those of an operand of shape {shape}")
    if len(of_x[0]) != len(of_y[0]) or len(of_x[1]) != len(of_y[1]):
        raise call.fail("both operands must have equally many batch and contracted dimensions")
    letters = iter(ascii_letters)
    left = {d: next(letters) for d in range(len(x))}
    partner = dict(zip((*of_y[0], *of_y[1]), (*of_x[0], *of_x[1]), strict=True))
    right = {d: left[partner[d]] if d in partner else next(letters) for d in range(len(y))}
    output = [left[d] for d in of_x[0]]
    output += [left[d] for d in left if d not in (*of_x[0], *of_x[1])]
    output += [right[d] for d in right if d not in partner]
    return f"{''.join(left.values())},{''.join(right.values())}->{''.join(output)}"


def _plain_dims(call: OperationReader, x: Ints, y: Ints) -> tuple[tuple[Ints, Ints], ...]:
    """Return the dimensions of `dot`: the last of the first operand, the first of the second."""
    if not (x and y):
        raise call.fail("dot takes vectors and matrices")
    return ((), (len(x) - 1,)), ((), (0,))


def _stated_dims(call: OperationReader) -> tuple[tuple[Ints, Ints], ...]:
    """Return the batch and the contracted dimensions of each operand of `dot_general`."""
    name = "dot_dimension_numbers"
    if call.has(name):
        fields = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
        numbers = call.struct(name, *(f"{field}_dimensions" for field in fields))
    else:
        numbers = []
        for key in ("batching_dims", "contracting_dims"):
            numbers += _list_pair(call, key) if call.has(key) else [(), ()]
    x_batch, y_batch, x_summed, y_summed = numbers
    return (x_batch, x_summed), (y_batch, y_summed)


def _list_pair(call: OperationReader, key: str) -> list[Ints]:
    """Return the two lists of `[0] x [1]`."""
    node = call.attr(key)
    if not isinstance(node, records.ListsRecord) or len(node.lists) != 2:
        raise call.fail("expected two lists, as [0] x [1]", first_token(node))
    return [call.types.integers(part) for part in node.lists]


def _emit_product(call: OperationReader, x: Value, y: Value, dims: str) -> Values:
    """Emit a `dot` in the dtypes in which XLA computes the product, and conversions."""
    result = call.result
    algorithm = _find_algorithm(call)
    if algorithm is None:
        dtypes = product_dtypes(x.type.dtype, y.type.dtype, result.dtype)
    else:
        try:
            dtypes = algorithm_dtypes(x.type.dtype, y.type.dtype, algorithm)
        except TypeError as error:
            raise UnsupportedOperation(f"{error}; leave it out") from None
    operands, product = (dtypes.x, dtypes.y), dtypes.product
    if product == "bool":  # An element is true if any product of it is.
        operands, product = ("f32", "f32"), "f32"
    x, y = (
        value
        if value.type.dtype == dtype
        else call.emit_step("convert", value, result=value.type.with_dtype(dtype))
        for value, dtype in zip((x, y), operands, strict=True)
    )
    if product == result.dtype:
        return call.emit("dot", x, y, dims=dims)
    made = call.emit_step("dot", x, y, result=result.with_dtype(product), dims=dims)
    return call.emit("convert", made)


def _find_algorithm(call: OperationReader) -> AlgorithmDtypes | None:
    """Return the algorithm that the text states, or `None` if it states none.

    Raises `UnsupportedOperation` for an algorithm that XLA does not support on CPUs.
    """
    if not call.has("algorithm"):
        return None
    fields = dict(_FIELD.findall(str(call.attr("algorithm"))))
    name = "_".join(
        fields.get(f"{part}_type", "")
        for part in ("lhs_precision", "rhs_precision", "accumulation")
    ).upper()
    count = fields.get("num_primitive_operations", "1")
    if count != "1":
        name = f"{name}_X{count}"
    is_plain = (
        fields.get("lhs_component_count", "1") == fields.get("rhs_component_count", "1") == "1"
        and fields.get("allow_imprecise_accumulation", "false") == "false"
    )
    if not is_plain or name not in ALGORITHMS:
        described = name if is_plain else f"<{', '.join(f'{k} = {v}' for k, v in fields.items())}>"
        raise UnsupportedOperation(
            f"its algorithm is {described}, and XLA supports only {', '.join(ALGORITHMS)} on CPUs"
        )
    return ALGORITHMS[name]
