"""Convert elements to another type, with the semantics of
`shardir.ops.elementwise.numerics.convert`."""

import numpy as np

from shardir.backends.gpu.kernels.terms import HELD, OWN, Term, grouped
from shardir.ir.types import FLOATS, NUMPY_DTYPES
from shardir.ops.elementwise.numerics import HALF_PRECISION_DTYPES

SHORT = ("bool", "i8", "u8")
"""Types whose values bf16 represents exactly."""


def convert(x: Term, to: str) -> str:
    """Return the expression of `x` in another type, rounded to it if it has 16 bits."""
    if x.dtype == to:
        return x.typed
    if to == "bool":
        return f"{x.text} != 0"
    text = grouped(x.tensor)
    if x.dtype in FLOATS:
        if to not in FLOATS:
            limits = np.iinfo(NUMPY_DTYPES[to])
            return f"to_integer({text}, {OWN[to]}, {limits.min}, {limits.max})"
        return _between_floats(text, x.dtype, to)
    return _from_integer(text, x.dtype, to)


def _between_floats(text: str, dtype: str, to: str) -> str:
    if to == "bf16" and dtype == "f64":
        return f"odd_from_f64({text}).to(tl.bfloat16).to(tl.float32)"
    if to in HALF_PRECISION_DTYPES:
        return f"{text}.to({OWN[to]}).to(tl.float32)"
    return text if HELD[dtype] == HELD[to] else f"{text}.to({HELD[to]})"


def _from_integer(text: str, dtype: str, to: str) -> str:
    if to == "bf16" and dtype not in SHORT:
        word = "u64" if dtype == "u64" else "i64"
        wide = text if dtype == word else f"{text}.to({OWN[word]})"
        return f"odd_from_{word}({wide}).to(tl.bfloat16).to(tl.float32)"
    if to in HALF_PRECISION_DTYPES and dtype not in SHORT:
        return f"{text}.to(tl.float32).to({OWN[to]}).to(tl.float32)"
    return f"{text}.to({HELD[to]})"
