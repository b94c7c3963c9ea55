"""Convert elements to another type, with the semantics of
`shardir.ops.elementwise.numerics.convert`."""

import numpy as np

from shardir.backends.gpu.dtypes import COMPUTE_TYPES, TRITON_TYPES
from shardir.backends.gpu.kernels.terms import KernelTerm, parenthesize
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.types import FLOATS, NUMPY_DTYPES

BF16_EXACT_TYPES = ("bool", "i8", "u8")
"""Types whose values bf16 represents exactly."""


def convert(x: KernelTerm, to: str) -> str:
    """Return the expression of `x` in another type, rounded to it if it has 16 bits."""
    if x.dtype == to:
        return x.typed_text
    if to == "bool":
        return f"{x.text} != 0"
    text = parenthesize(x.tensor)
    if x.dtype in FLOATS:
        if to not in FLOATS:
            limits = np.iinfo(NUMPY_DTYPES[to])
            return f"to_integer({text}, {TRITON_TYPES[to]}, {limits.min}, {limits.max})"
        return _between_floats(text, x.dtype, to)
    return _from_integer(text, x.dtype, to)


def _between_floats(text: str, dtype: str, to: str) -> str:
    if to == "bf16" and dtype == "f64":
        return f"odd_from_f64({text}).to(tl.bfloat16).to(tl.float32)"
    if to in NARROW_FLOATS:
        return f"{text}.to({TRITON_TYPES[to]}).to(tl.float32)"
    return text if COMPUTE_TYPES[dtype] == COMPUTE_TYPES[to] else f"{text}.to({COMPUTE_TYPES[to]})"


def _from_integer(text: str, dtype: str, to: str) -> str:
    if to == "bf16" and dtype not in BF16_EXACT_TYPES:
        word = "u64" if dtype == "u64" else "i64"
        wide = text if dtype == word else f"{text}.to({TRITON_TYPES[word]})"
        return f"odd_from_{word}({wide}).to(tl.bfloat16).to(tl.float32)"
    if to in NARROW_FLOATS and dtype not in BF16_EXACT_TYPES:
        return f"{text}.to(tl.float32).to({TRITON_TYPES[to]}).to(tl.float32)"
    return f"{text}.to({COMPUTE_TYPES[to]})"
