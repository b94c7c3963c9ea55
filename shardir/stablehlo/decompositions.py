"""Writing of Fourier transforms and decompositions, three of which StableHLO supports.

The others are custom calls with the name and attributes of the operation.
"""

from shardir import ops as ops  # declares the operations
from shardir.ir import Op
from shardir.opset import OPS
from shardir.stablehlo.attributes import array, boolean
from shardir.stablehlo.writer import RULES, Writer

TRANSPOSES = {"no": "NO_TRANSPOSE", "transpose": "TRANSPOSE", "adjoint": "ADJOINT"}
CALLED = ("eig", "eigh", "least_squares", "lu", "pinv", "qr", "svd")
"""Operations without a StableHLO counterpart, all of whose attributes are bools."""


@RULES.rule(OPS["fft"])
def _fft(w: Writer, op: Op) -> None:
    """Write a transform; the lengths are those of the signal, not of its spectrum."""
    kind, rank = op.attrs["kind"], op.attrs["rank"]
    signal = op.result.type if kind == "irfft" else op.operands[0].type
    attrs = {
        "fft_type": f"#stablehlo<fft_type {kind.upper()}>",
        "fft_length": array(signal.shape[signal.rank - rank :]),
    }
    w.op(op, "stablehlo.fft", attrs)


@RULES.rule(OPS["cholesky"])
def _cholesky(w: Writer, op: Op) -> None:
    w.op(op, "stablehlo.cholesky", {"lower": boolean(True)})


@RULES.rule(OPS["triangular_solve"])
def _triangular_solve(w: Writer, op: Op) -> None:
    attrs = {
        "left_side": boolean(True),
        "lower": boolean(op.attrs["lower"]),
        "unit_diagonal": boolean(op.attrs["unit"]),
        "transpose_a": f"#stablehlo<transpose {TRANSPOSES[op.attrs['transpose']]}>",
    }
    w.op(op, "stablehlo.triangular_solve", attrs)


@RULES.rule(*(OPS[name] for name in CALLED))
def _call(w: Writer, op: Op) -> None:
    config = ",".join(f"{name}={boolean(flag)}" for name, flag in sorted(op.attrs.items()))
    attrs = {
        "call_target_name": f'"shardir.{op.name}"',
        "has_side_effect": boolean(False),
        "backend_config": f'"{config}"',
    }
    w.op(op, "stablehlo.custom_call", attrs)
