"""Lowering rules of reductions with `popops::reduce`, argmax and argmin, cumulative operations.

Halves are summed and multiplied in single precision and rounded once. `popops::reduce` does not
support unsigned integers: sums and products of their bits as signed integers are equal, and their
order is that of signed integers with the highest bit flipped.
"""

from shardir import ops
from shardir.backends.ipu.codegen.device_types import NARROW_INTEGERS, element_of, initializer_text
from shardir.backends.ipu.codegen.emitter import ProgramEmitter
from shardir.backends.ipu.lowering.fused_groups import index_range
from shardir.backends.ipu.lowering.lowering_table import lowers
from shardir.ir.module import Op
from shardir.ir.types import FLOATS, TensorType

OPERATIONS = {
    "sum": "ADD", "prod": "MUL", "max": "MAX", "min": "MIN", "any": "LOGICAL_OR",
    "all": "LOGICAL_AND",
}  # fmt: skip
_BOOLEAN = {"MAX": "LOGICAL_OR", "MIN": "LOGICAL_AND", "ADD": "LOGICAL_OR", "MUL": "LOGICAL_AND"}
SIGN_BIT_CONSTANT = "pe::Const(std::numeric_limits<int>::min())"


def reduce_text(
    e: ProgramEmitter,
    text: str,
    type: TensorType,
    dims: tuple[int, ...],
    operation: str,
    label: str,
) -> str:
    """Return the expression of a reduction over dimensions, with the same element type."""
    if not dims:
        return text
    if type.dtype == "bool":
        operation = _BOOLEAN.get(operation, operation)
    end = f"{initializer_text(dims)}, popops::Operation::{operation}, {e.sequence}, {label}"
    if e.keeps_nan and type.dtype in FLOATS and operation in ("MAX", "MIN"):
        wide = to_single(e, text, type, label)
        return from_single(e, f"{e.use_helper('extreme')}(graph, {wide}, {end})", type, label)
    if type.dtype == "f16" and operation in ("ADD", "MUL"):
        wide = f"popops::reduce(graph, {text}, poplar::FLOAT, {end})"
        return f"popops::cast(graph, {wide}, poplar::HALF, {e.sequence}, {label})"
    if type.dtype in NARROW_INTEGERS:
        wide = f"popops::cast(graph, {text}, poplar::INT, {e.sequence}, {label})"
        made = f"popops::reduce(graph, {wide}, {end})"
        return f"popops::cast(graph, {made}, {element_of(type).poplar}, {e.sequence}, {label})"
    if type.dtype != "u32":
        return f"popops::reduce(graph, {text}, {end})"
    bits = f"{text}.reinterpret(poplar::INT)"
    if operation in ("ADD", "MUL"):
        return f"popops::reduce(graph, {bits}, {end}).reinterpret(poplar::UNSIGNED_INT)"
    turned = e.map_text(f"pe::_1 ^ {SIGN_BIT_CONSTANT}", [bits], label)
    made = e.map_text(
        f"pe::_1 ^ {SIGN_BIT_CONSTANT}", [f"popops::reduce(graph, {turned}, {end})"], label
    )
    return f"{made}.reinterpret(poplar::UNSIGNED_INT)"


@lowers(*OPERATIONS)
def _reduce(e: ProgramEmitter, op: Op) -> None:
    x, y = op.operands[0], op.result
    e.comment(op)
    made = reduce_text(
        e, e.text(x), x.type, tuple(op.attrs["dims"]), OPERATIONS[op.name], e.label(y)
    )
    e.define(y, made, None if op.attrs["dims"] else x)


def to_single(e: ProgramEmitter, text: str, type: TensorType, label: str) -> str:
    """Convert a tensor of floats to single precision."""
    if type.dtype != "f16":
        return text
    return f"popops::cast(graph, {text}, poplar::FLOAT, {e.sequence}, {label})"


def from_single(e: ProgramEmitter, text: str, type: TensorType, label: str) -> str:
    """Convert a single-precision tensor to a float type."""
    if type.dtype != "f16":
        return text
    return f"popops::cast(graph, {text}, poplar::HALF, {e.sequence}, {label})"


def ordered_keys(
    e: ProgramEmitter, text: str, type: TensorType, label: str, last: bool = True
) -> str:
    """Return integers in the order of the elements: equal zeros, and NaN largest (or smallest)."""
    if type.dtype == "bool" or type.dtype in NARROW_INTEGERS:
        return f"popops::cast(graph, {text}, poplar::INT, {e.sequence}, {label})"
    if type.dtype == "u32":
        return e.map_text(
            f"pe::_1 ^ {SIGN_BIT_CONSTANT}", [f"{text}.reinterpret(poplar::INT)"], label
        )
    if type.dtype == "i32":
        return text
    wide, helper = to_single(e, text, type, label), e.use_helper("ordered")
    return f"{helper}(graph, {wide}, {'true' if last else 'false'}, {e.sequence}, {label})"


@lowers("argmax", "argmin")
def _argmax_or_argmin(e: ProgramEmitter, op: Op) -> None:
    """Lower argmax and argmin: the first index of the extreme; NaN exceeds all numbers."""
    x, y, dim = op.operands[0], op.result, op.attrs["dim"]
    e.comment(op)
    label, size = e.label(y), x.type.shape[dim]
    largest = op.spec is ops.argmax
    keys = e.temporary(f"{y.name}_keys", ordered_keys(e, e.text(x), x.type, label, last=largest))
    end = f"popops::Operation::{'MAX' if largest else 'MIN'}, {e.sequence}, {label}"
    best = e.temporary(f"{y.name}_best", f"popops::reduce(graph, {keys}, {{{dim}}}, {end})")
    ones = [1 if d == dim else n for d, n in enumerate(x.type.shape)]
    spread = f"{best}.reshape({initializer_text(ones)}).broadcast({size}, {dim})"
    line = index_range(e, size, "i32")
    places = (
        f"{line}.reshape({initializer_text([size if d == dim else 1 for d in range(x.type.rank)])})"
    )
    for d, n in enumerate(x.type.shape):
        if d != dim and n != 1:
            places += f".broadcast({n}, {d})"
    where = f"pe::Select(pe::_3, pe::Const({size}), pe::_1 == pe::_2)"
    found = e.map_text(where, [keys, spread, places], label)
    end = f"popops::Operation::MIN, {e.sequence}, {label}"
    made = f"popops::reduce(graph, {found}, {{{dim}}}, {end})"
    if y.type.dtype != "i32":
        made = f"popops::cast(graph, {made}, {element_of(y.type).poplar}, {e.sequence}, {label})"
    e.define(y, made)


def extreme_text(e: ProgramEmitter, name: str, dtype: str) -> str:
    """Return the expression of the maximum (`Max`) or minimum (`Min`) of two elements."""
    if dtype == "bool":
        return "pe::_1 || pe::_2" if name == "Max" else "pe::_1 && pe::_2"
    made = f"pe::{name}(pe::_1, pe::_2)"
    if not e.keeps_nan or dtype not in FLOATS:
        return made
    second = f"pe::Select(pe::_2, {made}, pe::IsNaN(pe::_2))"
    return f"pe::Select(pe::_1, {second}, pe::IsNaN(pe::_1))"


_COMBINE_EXPRESSIONS = {
    "cumsum": "pe::_1 + pe::_2",
    "cumprod": "pe::_1 * pe::_2",
    # log(exp(a) + exp(b)) without overflow, also if both are infinite.
    "cumlogsumexp": (
        "pe::Select(pe::Max(pe::_1, pe::_2), pe::Max(pe::_1, pe::_2) + "
        "pe::Log1p(pe::Exp(-pe::Abs(pe::_1 - pe::_2))), "
        "pe::_1 == pe::_2 && pe::IsInf(pe::_1))"
    ),
}


@lowers(*_COMBINE_EXPRESSIONS, "cummax", "cummin")
def _cumulative(e: ProgramEmitter, op: Op) -> None:
    """Lower cumulative operations by doubling: step k combines each element with the one 2^k
    before.
    """
    x, y, dim = op.operands[0], op.result, op.attrs["dim"]
    e.comment(op)
    text, dtype = e.text(x), x.type.dtype
    if op.spec in (ops.cummax, ops.cummin):
        combine = extreme_text(e, "Max" if op.spec is ops.cummax else "Min", dtype)
    else:
        combine = _COMBINE_EXPRESSIONS[op.name]
    back = ""
    if dtype == "f16" or dtype in NARROW_INTEGERS:
        wide = "poplar::FLOAT" if dtype == "f16" else "poplar::INT"
        text = f"popops::cast(graph, {text}, {wide}, {e.sequence}, {e.label(y)})"
        back = element_of(y.type).poplar
    turn = f".reverse({dim})" if op.attrs["reverse"] else ""
    helper = e.use_helper("running")
    made = f"{helper}(graph, {text}{turn}, {dim}, {combine}, {e.sequence}, {e.label(y)})"
    made += turn
    if back:
        made = f"popops::cast(graph, {made}, {back}, {e.sequence}, {e.label(y)})"
    e.define(y, made, x if x.type.shape[dim] < 2 else None)
