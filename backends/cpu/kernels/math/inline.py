"""Instructions of elementwise operations on vectors; `emit` is the entry point for kernels."""

from collections.abc import Mapping, Sequence

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.kernels.math import (
    basic_rules,
    complex_arithmetic,
    complex_functions,
    complex_inverse,
    integers,
    library,
)
from shardir.backends.cpu.kernels.math.application import Divisor, OpApplication, VectorRule
from shardir.backends.cpu.kernels.math.conversion import bitcast_rule, convert_rule
from shardir.backends.cpu.kernels.math.registers import VectorValue, real_vector, round_to_narrow
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.operation import Attr
from shardir.ir.types import COMPLEX, FLOATS

NARROW_EXACT_OPS = frozenset(
    (
        "neg", "abs", "sign", "floor", "ceil", "round", "maximum", "minimum", "clamp", "select",
        "stop_gradient", "sharding_constraint", "reshard", "propagation_barrier",
        "checkpoint-name", "pipeline-stage", "vary", "nextafter", "convert", "rem",
    )
)  # fmt: skip
"""Operations whose results need no rounding to a narrow type."""

COMPLEX_FUNCTION_RULES = {
    **complex_functions.RULES,
    **{
        name: complex_functions.compute_in_double(function)
        for name, function in complex_inverse.FUNCTIONS.items()
    },
}
"""Functions of complex numbers."""


def emit_elementwise(
    function: LLVMFunction,
    op: str,
    attrs: Mapping[str, Attr],
    operands: Sequence[VectorValue],
    dtypes: Sequence[str],
    result: str,
    divisor: Divisor | None = None,
) -> VectorValue | None:
    """Append the instructions of an elementwise operation on vectors of any number of lanes.

    `op` is its name in the IR, `dtypes` and `result` are the IR's element types of operands and
    result; all operands have the same number of lanes. Values are represented as in `registers`.
    Functions of more than a few instructions are calls of `library`, whose symbols the module then
    declares (`library.imported_symbols`). `divisor` are precomputed properties of the second
    operand of an integer division. Returns `None` if the operation is not supported.
    """
    a = OpApplication(function, op, attrs, tuple(operands), tuple(dtypes), result, divisor)
    rule = _select_rule(a)
    made = None if rule is None else rule(a)
    if isinstance(made, LLVMValue) and result in NARROW_FLOATS and op not in NARROW_EXACT_OPS:
        return round_to_narrow(function, made, result)
    return made


def _select_rule(a: OpApplication) -> VectorRule | None:
    if a.op == "convert":
        return convert_rule
    if a.op == "bitcast":
        return bitcast_rule
    if a.op in complex_arithmetic.COMPLEX_FROM_REAL_OPS or (
        a.dtype in COMPLEX and a.op not in basic_rules.IDENTITY_RULES
    ):
        return complex_arithmetic.RULES.get(a.op) or COMPLEX_FUNCTION_RULES.get(a.op)
    if a.dtype not in FLOATS and a.op in integers.RULES:
        return integers.RULES[a.op]
    return basic_rules.RULES.get(a.op) or _call_library


def _call_library(a: OpApplication) -> VectorValue | None:
    """Call a library function; narrow floats are computed in f32."""
    if a.dtype not in FLOATS:
        return None
    dtype = "f32" if a.dtype in NARROW_FLOATS else a.dtype
    name = "erf_inv_xla" if a.attrs.get("as_xla") else a.op
    if library.symbol_of_op(name, dtype) is None:
        return None
    return library.call_function(
        a.function, name, dtype, *(real_vector(held) for held in a.operands)
    )
