"""Reductions of tensors of several devices, for all element types.

Tensors are reduced in order of position, with 16-bit floats in single precision. Torch has no
arithmetic on unsigned integers of more than 8 bits: sums, products and bitwise operations use the
signed type of the same width, and comparisons do so after the highest bits are flipped.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SIGNED_DTYPES = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Signed types of the same width, in which torch computes."""


def view_as_words(x: Tensor) -> Tensor:
    """Return unsigned integers viewed as a signed type, which torch can move and compute with."""
    return x.view(SIGNED_DTYPES[x.dtype]) if x.dtype in SIGNED_DTYPES else x


def reduce_tensors(parts: Sequence[Tensor], op: str) -> Tensor:
    """Reduce all parts with `op`: add, mul, max, min, and, or."""
    dtype = parts[0].dtype
    if len(parts) == 1:
        return parts[0].clone()
    if dtype.is_floating_point and dtype.itemsize < 4:
        return _reduce_in_order([part.float() for part in parts], op).to(dtype)
    if dtype in SIGNED_DTYPES:
        signed = [view_as_words(part) for part in parts]
        if op not in ("max", "min"):
            return _reduce_in_order(signed, op).view(dtype)
        top = torch.iinfo(SIGNED_DTYPES[dtype]).min
        return (_reduce_in_order([part ^ top for part in signed], op) ^ top).view(dtype)
    return _reduce_in_order(parts, op)


def _reduce_in_order(parts: Sequence[Tensor], op: str) -> Tensor:
    combine = _OPERATIONS[op]
    made = parts[0]
    for part in parts[1:]:
        made = combine(made, part)
    return made


def _add(x: Tensor, y: Tensor) -> Tensor:
    return x | y if x.dtype == torch.bool else x + y


def _maximum(x: Tensor, y: Tensor) -> Tensor:
    """Return the maximum; NaN if either is NaN, and +0 above -0."""
    best = torch.maximum(x, y)
    return torch.where((x == 0) & (y == 0), x + y, best) if x.is_floating_point() else best


def _minimum(x: Tensor, y: Tensor) -> Tensor:
    """Return the minimum; NaN if either is NaN, and -0 below +0."""
    best = torch.minimum(x, y)
    return torch.where((x == 0) & (y == 0), -(-x - y), best) if x.is_floating_point() else best


_OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": _add,
    "mul": lambda x, y: x * y,
    "max": _maximum,
    "min": _minimum,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
}


def identity_element(op: str, dtype: torch.dtype) -> bool | int | float:
    """Return the identity element of a reduction."""
    if op in ("add", "or"):
        return 0
    if op == "mul":
        return 1
    if dtype == torch.bool:
        return op in ("and", "min")
    if op == "and":
        return -1
    if dtype.is_floating_point:
        return float("-inf") if op == "max" else float("inf")
    info = torch.iinfo(dtype)
    return int(info.min if op == "max" else info.max)
