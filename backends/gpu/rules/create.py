"""Operations without operands. A uniform number is written where it is used, if possible."""

from shardir.backends.gpu.dtypes import SIGNED_WORD_DTYPES, TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import full_text, shape_arguments
from shardir.ir.module import Op
from shardir.ir.operation import Dense
from shardir.ir.types import COMPLEX, FLOATS


@lowers("constant")
def _constant(w: FunctionWriter, op: Op) -> str:
    """Lower `constant`; a function of the program creates an array once per device."""
    value, to = op.attrs["value"], op.result.type
    if isinstance(value, Dense):
        name = f"constant_{len(w.needs.constants)}"
        for known, (array, dtype) in w.needs.constants.items():
            if dtype == to.dtype and Dense(array) == value:
                name = known
        w.needs.constants[name] = (value.array, to.dtype)
        return f"{name}(device)"
    reference = op.spec.reference
    assert reference is not None
    number = reference(value=value, result=to.with_shape(()))
    return full_text(to.shape, number, to.dtype)


@lowers("iota")
def _iota(w: FunctionWriter, op: Op) -> str:
    to, dim = op.result.type, op.attrs["dim"]
    size = to.shape[dim]
    direct = (
        to.dtype not in SIGNED_WORD_DTYPES and to.dtype not in COMPLEX and to.dtype not in FLOATS
    )
    if to.dtype in ("f32", "f64"):
        direct = size < 1 << 24
    if direct and to.dtype not in ("i8", "u8", "i16"):
        made = f"torch.arange({size}, dtype={TORCH_DTYPES[to.dtype]}, device=device)"
    else:
        made = f"torch.arange({size}, device=device).to({TORCH_DTYPES[to.dtype]})"
    if to.rank == 1:
        return made
    after = to.rank - 1 - dim
    if after:
        made += f".reshape(-1{', 1' * after})" if after > 1 else "[:, None]"
    return f"{made}.expand({shape_arguments(to.shape)})"
