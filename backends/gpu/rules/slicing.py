"""Slices, padding, and updates of slices."""

import numpy as np

from shardir.backends.gpu.dtypes import SIGNED_WORD_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import list_text
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX


@lowers("slice")
def _slice(w: FunctionWriter, op: Op, x: str) -> str:
    shape, to = op.operands[0].type.shape, op.result.type.shape
    parts = []
    for extent, size, start, stride in zip(
        shape, to, op.attrs["starts"], op.attrs["strides"], strict=True
    ):
        if (start, size, stride) == (0, extent, 1):
            parts.append(":")
            continue
        stop = start + (size - 1) * stride + 1 if size else start
        step = f":{stride}" if stride != 1 and size > 1 else ""
        parts.append(f"{start or ''}:{'' if stop == extent else stop}{step}")
    while parts and parts[-1] == ":":
        parts.pop()
    return f"{x}[{', '.join(parts)}]" if parts else x


@lowers("pad", lazy=True)
def _pad(w: FunctionWriter, op: Op) -> str:
    """Lower `pad`; a known value without interior padding is `F.pad`, which also crops."""
    x, value = op.operands
    low, high, interior = (op.attrs[name] for name in ("low", "high", "interior"))
    number, dtype = w.uniform_number(value), op.result.type.dtype
    kept = all(n + min(a, 0) + min(b, 0) > 0 for n, a, b in zip(x.type.shape, low, high,
                                                               strict=True))  # fmt: skip
    plain = (
        dtype not in SIGNED_WORD_DTYPES and dtype != "bool" and x.type.size and kept and x.type.rank
    )
    nothing = number is not None and _is_plain_zero(number)
    plain = plain and (nothing or (number is not None and dtype not in COMPLEX))
    if not any(interior) and plain:
        pairs = [end for d in reversed(range(x.type.rank)) for end in (low[d], high[d])]
        while len(pairs) > 2 and pairs[-2:] == [0, 0]:
            pairs = pairs[:-2]
        given = "" if nothing else f", value={w.operand_text(value)}"
        return f"F.pad({w.name(x)}, {list_text(pairs)}{given})"
    ends = (list_text(low), list_text(high), list_text(interior))
    return w.call_library("pad_with", w.name(x), w.name(value), *ends)


def _is_plain_zero(number: object) -> bool:
    """Return whether the number is 0 and not -0."""
    return not np.asarray(number).tobytes().strip(b"\0")


@lowers("dynamic_slice")
def _dynamic_slice(w: FunctionWriter, op: Op, x: str, *starts: str) -> str:
    return w.call_library("slice_at", x, list_text(starts), list_text(op.result.type.shape))


@lowers("dynamic_update_slice")
def _dynamic_update_slice(w: FunctionWriter, op: Op, x: str, update: str, *starts: str) -> str:
    return w.call_library("update_at", x, update, list_text(starts))
