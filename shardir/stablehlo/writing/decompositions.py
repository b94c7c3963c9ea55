"""Writing of Fourier transforms and decompositions, three of which StableHLO supports.

The others are custom calls with the name and attributes of the operation.
"""

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.stablehlo.writing.attributes import format_array, format_boolean
from shardir.stablehlo.writing.writer import WRITERS, MlirWriter

TRANSPOSES = {"no": "NO_TRANSPOSE", "transpose": "TRANSPOSE", "adjoint": "ADJOINT"}
CUSTOM_CALL_OPERATIONS = ("eig", "eigh", "least_squares", "lu", "pinv", "qr", "schur", "svd")
"""Operations without a StableHLO counterpart, all of whose attributes are bools."""


@WRITERS.rule(OPS["fft"])
def _fft(w: MlirWriter, op: Op) -> None:
    """Write a transform; the lengths are those of the signal, not of its spectrum."""
    kind, rank = op.attrs["kind"], op.attrs["rank"]
    signal = op.result.type if kind == "irfft" else op.operands[0].type
    attrs = {
        "fft_type": f"#stablehlo<fft_type {kind.upper()}>",
        "fft_length": format_array(signal.shape[signal.rank - rank :]),
    }
    w.write_op(op, "stablehlo.fft", attrs)


@WRITERS.rule(OPS["cholesky"])
def _cholesky(w: MlirWriter, op: Op) -> None:
    w.write_op(op, "stablehlo.cholesky", {"lower": format_boolean(True)})


@WRITERS.rule(OPS["triangular_solve"])
def _triangular_solve(w: MlirWriter, op: Op) -> None:
    attrs = {
        "left_side": format_boolean(True),
        "lower": format_boolean(op.attrs["lower"]),
        "unit_diagonal": format_boolean(op.attrs["unit"]),
        "transpose_a": f"#stablehlo<transpose {TRANSPOSES[op.attrs['transpose']]}>",
    }
    w.write_op(op, "stablehlo.triangular_solve", attrs)


@WRITERS.rule(*(OPS[name] for name in CUSTOM_CALL_OPERATIONS))
def _call(w: MlirWriter, op: Op) -> None:
    config = ",".join(f"{name}={format_boolean(flag)}" for name, flag in sorted(op.attrs.items()))
    attrs = {
        "call_target_name": f'"shardir.{op.name}"',
        "has_side_effect": format_boolean(False),
        "backend_config": f'"{config}"',
    }
    w.write_op(op, "stablehlo.custom_call", attrs)
