"""Reading of Fourier transforms and decompositions."""

from shardir.ir.module import Value
from shardir.ir.operation import Attr, Symbol
from shardir.stablehlo.reading.call import OperationReader, UnsupportedOperation, register_reader
from shardir.stablehlo.writing.decompositions import CUSTOM_CALL_OPERATIONS, TRANSPOSES

Values = tuple[Value, ...]


@register_reader("fft")
def _fft(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    kind = call.word("fft_type", "type")
    lengths = call.integers("fft_length", "length")
    signal = call.result if kind == "IRFFT" else x.type
    if signal.shape[signal.rank - len(lengths) :] != lengths:
        raise call.fail(f"transforms {list(lengths)} elements of {signal}")
    return call.emit("fft", x, kind=Symbol(kind.lower()), rank=len(lengths))


@register_reader("cholesky")
def _cholesky(call: OperationReader) -> Values:
    if not _flag(call, "lower"):
        raise UnsupportedOperation("it reads the upper triangle")
    return call.emit("cholesky", *call.take_operands(1))


@register_reader("triangular_solve")
def _triangular_solve(call: OperationReader) -> Values:
    """Read a solve; a solve from the right is the transposed system from the left."""
    transpose = next(ours for ours, word in TRANSPOSES.items() if word == call.word("transpose_a"))
    lower, unit = _flag(call, "lower"), _flag(call, "unit_diagonal")
    return emit_solve(call, transpose, left=_flag(call, "left_side"), lower=lower, unit=unit)


def emit_solve(
    call: OperationReader, transpose: str, *, left: bool, lower: bool, unit: bool
) -> Values:
    """Emit the solution of a triangular system, whose two sides are the operands."""
    a, y = call.take_operands(2)
    if left:
        symbol = Symbol(transpose)
        return call.emit("triangular_solve", a, y, lower=lower, transpose=symbol, unit=unit)
    if transpose == "adjoint":
        raise UnsupportedOperation("it solves for the conjugate from the right")
    rank = y.type.rank
    perm = (*range(rank - 2), rank - 1, rank - 2)
    turned = Symbol("transpose" if transpose == "no" else "no")
    turned_solution = call.emit_step(
        "triangular_solve",
        a,
        call.emit_step("transpose", y, perm=perm),
        lower=lower,
        transpose=turned,
        unit=unit,
    )
    return call.emit("transpose", turned_solution, perm=perm)


def _flag(call: OperationReader, name: str) -> bool:
    return call.has(name) and str(call.attr(name)) == "true"


def read_own_call(call: OperationReader, target: str) -> Values | None:
    """Read a custom call of an operation of this IR; return `None` for other targets."""
    name = target.removeprefix("shardir.")
    if name == target or name not in CUSTOM_CALL_OPERATIONS:
        return None
    config = call.types.string(call.attr("backend_config"))
    flags = (pair.partition("=") for pair in config.split(",") if pair)
    attrs: dict[str, Attr] = {key: flag == "true" for key, _, flag in flags}
    return call.emit(name, *call.operands, **attrs)
