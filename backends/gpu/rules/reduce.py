"""Reductions, argmax and argmin, and cumulative reductions."""

from shardir import ops
from shardir.backends.gpu.dtypes import SIGNED_WORD_DTYPES, TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import view_as_word
from shardir.backends.gpu.torch_text import limit_text, shape_text
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, FLOATS


def _dims(dims: tuple[int, ...]) -> str:
    return str(dims[0]) if len(dims) == 1 else shape_text(dims)


@lowers("sum")
def _sum(w: FunctionWriter, op: Op, x: str) -> str:
    dims, dtype = op.attrs["dims"], op.result.type.dtype
    if not dims:
        return x
    kept = (
        ""
        if dtype in (*FLOATS, *COMPLEX)
        else f", dtype={SIGNED_WORD_DTYPES.get(dtype, TORCH_DTYPES[dtype])}"
    )
    made = f"{view_as_word(w, op.operands[0])}.sum({_dims(dims)}{kept})"
    return f"{made}.view({TORCH_DTYPES[dtype]})" if dtype in SIGNED_WORD_DTYPES else made


@lowers("prod")
def _prod(w: FunctionWriter, op: Op, x: str) -> str:
    """Lower `prod`; torch multiplies along one dimension at a time."""
    dtype = op.result.type.dtype
    kept = (
        ""
        if dtype in (*FLOATS, *COMPLEX)
        else f", dtype={SIGNED_WORD_DTYPES.get(dtype, TORCH_DTYPES[dtype])}"
    )
    made = view_as_word(w, op.operands[0])
    if not op.attrs["dims"]:
        return x
    narrow = dtype in NARROW_FLOATS
    made = f"{made}.float()" if narrow else made
    for dim in sorted(op.attrs["dims"], reverse=True):
        made = f"{made}.prod({dim}{kept})"
    if narrow:
        return f"{made}.to({TORCH_DTYPES[dtype]})"
    return f"{made}.view({TORCH_DTYPES[dtype]})" if dtype in SIGNED_WORD_DTYPES else made


@lowers("max", "min")
def _extreme(w: FunctionWriter, op: Op, x: str) -> str:
    dims, to = op.attrs["dims"], op.result.type
    if not dims:
        return x
    if not op.operands[0].type.size:
        text = limit_text(to.dtype, op.spec is ops.min_)
        element = TORCH_DTYPES[to.dtype]
        return f"torch.full({shape_text(to.shape)}, {text}, dtype={element}, device=device)"
    if to.dtype == "bool":
        made = x
        for dim in sorted(dims, reverse=True):
            made = f"{made}.{'any' if op.spec is ops.max_ else 'all'}({dim})"
        return made
    if to.dtype in SIGNED_WORD_DTYPES:
        ordered = w.call_library("in_order", x)
        return w.call_library(
            "out_of_order", f"{ordered}.a{op.name}({_dims(dims)})", TORCH_DTYPES[to.dtype]
        )
    return f"{x}.a{op.name}({_dims(dims)})"


@lowers("any", "all")
def _logical(w: FunctionWriter, op: Op, x: str) -> str:
    dims = op.attrs["dims"]
    return f"{x}.{op.name}({_dims(dims)})" if dims else x


@lowers("argmax", "argmin")
def _position(w: FunctionWriter, op: Op, x: str) -> str:
    if op.operands[0].type.dtype in (*SIGNED_WORD_DTYPES, "bool"):
        x = w.call_library("in_order", x)
    return f"{x}.{op.name}({op.attrs['dim']}).to({TORCH_DTYPES[op.result.type.dtype]})"


CUMULATIVE_TEMPLATES = {
    "cumsum": "torch.cumsum({}, {})",
    "cumprod": "torch.cumprod({}, {})",
    "cummax": "torch.cummax({}, {}).values",
    "cummin": "torch.cummin({}, {}).values",
    "cumlogsumexp": "torch.logcumsumexp({}, {})",
}


@lowers(*CUMULATIVE_TEMPLATES)
def _cumulative(w: FunctionWriter, op: Op, x: str) -> str:
    """Lower a cumulative reduction; `reverse` flips before and after. Integers wrap in their own
    type.
    """
    dtype, dim = op.result.type.dtype, op.attrs["dim"]
    ordered = op.spec in (ops.cummax, ops.cummin)
    if ordered and dtype in (*SIGNED_WORD_DTYPES, "bool"):
        x = w.call_library("in_order", x)
    elif dtype in NARROW_FLOATS and not ordered:
        x = f"{x}.float()"
    elif not ordered:
        x = view_as_word(w, op.operands[0])
    if op.attrs["reverse"]:
        x = f"torch.flip({x}, [{dim}])"
    made = CUMULATIVE_TEMPLATES[op.name].format(x, dim)
    if not ordered and dtype not in (*FLOATS, *COMPLEX):
        made = f"{made[:-1]}, dtype={SIGNED_WORD_DTYPES.get(dtype, TORCH_DTYPES[dtype])})"
    if op.attrs["reverse"]:
        made = f"torch.flip({made}, [{dim}])"
    if ordered and dtype in (*SIGNED_WORD_DTYPES, "bool"):
        return w.call_library("out_of_order", made, TORCH_DTYPES[dtype])
    if dtype in NARROW_FLOATS and not ordered:
        return f"{made}.to({TORCH_DTYPES[dtype]})"
    return f"{made}.view({TORCH_DTYPES[dtype]})" if dtype in SIGNED_WORD_DTYPES else made
