"""Matrix decompositions, triangular solves, and Fourier transforms."""

from shardir.backends.gpu.dtypes import TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import list_text, shape_text
from shardir.ir.module import Op


@lowers("cholesky")
def _cholesky(w: FunctionWriter, op: Op, x: str) -> str:
    return w.call_library("cholesky_factor", x)


@lowers("triangular_solve")
def _triangular_solve(w: FunctionWriter, op: Op, a: str, y: str) -> str:
    lower, how = op.attrs["lower"], op.attrs["transpose"]
    if how != "no":
        a, lower = f"{a}.{'mT' if how == 'transpose' else 'mH'}", not lower
    unit = ", unitriangular=True" if op.attrs["unit"] else ""
    return f"torch.linalg.solve_triangular({a}, {y}, upper={not lower}{unit})"


@lowers("qr")
def _qr(w: FunctionWriter, op: Op, x: str) -> str:
    return f'torch.linalg.qr({x}, mode="{"complete" if op.attrs["full"] else "reduced"}")'


@lowers("lu")
def _lu(w: FunctionWriter, op: Op, x: str) -> str:
    return w.call_library("pivoted_factors", x)


@lowers("svd")
def _svd(w: FunctionWriter, op: Op, x: str) -> str:
    if not op.attrs["vectors"]:
        return w.call_library("singular_values", x)
    return w.call_library("singular_vectors", x, f"full={op.attrs['full']}")


@lowers("eigh")
def _eigh(w: FunctionWriter, op: Op, x: str) -> str:
    return w.call_library("hermitian_vectors" if op.attrs["vectors"] else "hermitian_values", x)


@lowers("eig")
def _eig(w: FunctionWriter, op: Op, x: str) -> str:
    return w.call_library("general_vectors" if op.attrs["vectors"] else "general_values", x)


@lowers("pinv")
def _pinv(w: FunctionWriter, op: Op, x: str, cutoff: str) -> str:
    return w.call_library("pseudo_inverse", x, cutoff)


@lowers("least_squares")
def _least_squares(w: FunctionWriter, op: Op, a: str, y: str, cutoff: str) -> str:
    inverse, values = (
        w.call_library("pseudo_inverse", a, cutoff),
        w.call_library("singular_values", a),
    )
    return f"({inverse} @ {y}, {values})"


@lowers("fft")
def _fft(w: FunctionWriter, op: Op, x: str) -> str:
    source, to, rank = op.operands[0].type, op.result.type, op.attrs["rank"]
    if not source.size or not to.size:
        return f"torch.zeros({shape_text(to.shape)}, dtype={TORCH_DTYPES[to.dtype]}, device=device)"
    dims = list_text(range(source.rank - rank, source.rank))
    sizes = to.shape[-rank:] if op.attrs["kind"] == "irfft" else source.shape[-rank:]
    return f"torch.fft.{op.attrs['kind']}n({x}, s={list_text(sizes)}, dim={dims})"
