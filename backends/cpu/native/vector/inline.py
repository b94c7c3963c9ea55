"""Instructions of elementwise operations on vectors; `emit` is the entry point for kernels."""

from collections.abc import Mapping, Sequence

from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.vector import (
    complex_functions,
    complex_inverse,
    complexes,
    division,
    exact,
    integers,
    library,
)
from shardir.backends.cpu.native.vector.application import Application, Rule
from shardir.backends.cpu.native.vector.conversion import convert, reinterpret
from shardir.backends.cpu.native.vector.registers import NARROW, Held, rounded, single
from shardir.opset import Attr
from shardir.types import COMPLEX, FLOATS

KEEPS = frozenset(
    (
        "neg", "abs", "sign", "floor", "ceil", "round", "maximum", "minimum", "clamp", "select",
        "stop_gradient", "sharding_constraint", "reshard", "propagation_barrier", "data_flow_edge",
        "checkpoint-name", "vary", "nextafter", "convert", "rem",
    )
)  # fmt: skip
"""Operations whose results need no rounding to a narrow type."""

COMPLEX_RULES = {
    **complex_functions.RULES,
    **{
        name: complex_functions.in_double(function)
        for name, function in complex_inverse.FUNCTIONS.items()
    },
}
"""Functions of complex numbers."""


def emit(
    function: Function,
    op: str,
    attrs: Mapping[str, Attr],
    operands: Sequence[Held],
    dtypes: Sequence[str],
    result: str,
    divisor: division.Divisor | None = None,
) -> Held | None:
    """Append the instructions of an elementwise operation on vectors of any number of lanes.

    `op` is its name in the IR, `dtypes` and `result` are the IR's element types of operands and
    result; all operands have the same number of lanes. Values are represented as in `registers`.
    Functions of more than a few instructions are calls of `library`, whose symbols the module then
    declares (`library.symbols_of`). `divisor` are precomputed properties of the second operand of
    an integer division. Returns `None` if the operation is not supported.
    """
    a = Application(function, op, attrs, tuple(operands), tuple(dtypes), result, divisor)
    rule = _rule(a)
    made = None if rule is None else rule(a)
    if isinstance(made, Value) and result in NARROW and op not in KEEPS:
        return rounded(function, made, result)
    return made


def _rule(a: Application) -> Rule | None:
    if a.op == "convert":
        return convert
    if a.op == "bitcast":
        return reinterpret
    if a.op in complexes.MIXED or (a.dtype in COMPLEX and a.op not in exact.MOVES):
        return complexes.RULES.get(a.op) or COMPLEX_RULES.get(a.op)
    if a.dtype not in FLOATS and a.op in integers.RULES:
        return integers.RULES[a.op]
    return exact.RULES.get(a.op) or _function


def _function(a: Application) -> Held | None:
    """Call a library function; narrow floats are computed in f32."""
    if a.dtype not in FLOATS:
        return None
    dtype = "f32" if a.dtype in NARROW else a.dtype
    name = "erf_inv_xla" if a.attrs.get("as_xla") else a.op
    if library.symbol(name, dtype) is None:
        return None
    return library.call(a.function, name, dtype, *(single(held) for held in a.operands))
