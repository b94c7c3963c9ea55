"""Conversions between element types, and functions that torch rounds twice or leaves undefined."""

import torch
from torch import Tensor

from shardir.backends.gpu.library.integers import as_words, in_order, out_of_order


def odd_single(x: Tensor) -> Tensor:
    """Round `x` to f32 with round-to-odd, so that a second rounding gives the same as one."""
    if x.dtype in (torch.int64, torch.uint64):
        word, lost = as_words(x), 0x7FF
        high = (word >> 11) & ((1 << 53) - 1) if x.dtype == torch.uint64 else word >> 11
        odd = (high | ((word & lost) != 0)).to(torch.float64) * 2048.0
        small = (word >= 0) & (word < 1 << 53)
        if x.dtype == torch.int64:
            small = small | ((word < 0) & (word > -(1 << 53)))
        x = torch.where(small, torch.where(small, word, 0).to(torch.float64), odd)
    wide = x.to(torch.float64)
    single = wide.to(torch.float32)
    back = single.to(torch.float64)
    inward = torch.where(
        back.abs() > wide.abs(), torch.nextafter(single, torch.zeros_like(single)), single
    )
    odd = (inward.view(torch.int32) | 1).view(torch.float32)
    return torch.where((back == wide) | ~wide.isfinite(), single, odd)


def round_once(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert elements wider than 16 bits to f16 or bf16 with one rounding (torch rounds
    via f32).
    """
    return (x if x.dtype == torch.float32 else odd_single(x)).to(dtype)


def float_to_integer(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Truncate towards zero; saturate out-of-range values; NaN becomes 0."""
    limits = torch.iinfo(dtype)
    whole = x.to(torch.float64).trunc()
    below, above = whole <= float(limits.min), whole >= float(limits.max)
    inside = torch.where(below | above | whole.isnan(), 0.0, whole)
    if dtype == torch.uint64:
        high = inside >= 2.0**63
        word = torch.where(high, inside - 2.0**63, inside).to(torch.int64)
        word = torch.where(high, word ^ torch.iinfo(torch.int64).min, word)
        return torch.where(above, -1, torch.where(below, 0, word)).view(torch.uint64)
    made = torch.where(below, limits.min, torch.where(above, limits.max, inside.to(torch.int64)))
    return made.to(dtype)


def larger(x: Tensor, y: Tensor) -> Tensor:
    """Return the elementwise maximum of integers or bools of any type."""
    if x.dtype == torch.bool:
        return x | y
    return out_of_order(torch.maximum(in_order(x), in_order(y)), x.dtype)


def smaller(x: Tensor, y: Tensor) -> Tensor:
    """Return the elementwise minimum of integers or bools of any type."""
    if x.dtype == torch.bool:
        return x & y
    return out_of_order(torch.minimum(in_order(x), in_order(y)), x.dtype)


def sign_of(x: Tensor) -> Tensor:
    """Return -1, 0 or 1; zeros keep their sign, and NaN stays NaN."""
    if not x.is_floating_point():
        word = as_words(x)
        some = (word != 0).to(word.dtype)
        return (torch.sign(word) if x.dtype.is_signed else some).view(x.dtype)
    return torch.where((x == 0) | x.isnan(), x, torch.sign(x))


def next_after(x: Tensor, y: Tensor) -> Tensor:
    """Return the 16-bit float next to `x` in the direction of `y`."""
    word = x.view(torch.int16)
    away = torch.where((y > x) == (x > 0), 1, -1).to(torch.int16)
    tiny = torch.where(y > 0, 1, -(2**15) + 1).to(torch.int16)
    moved = torch.where(x == 0, tiny, word + away).view(x.dtype)
    return torch.where(x.isnan() | y.isnan(), x + y, torch.where(x == y, y, moved))


def total_order(x: Tensor) -> Tensor:
    """Return integers in the total order of floats: NaN, infinity, ..., +0, -0, ..."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    word = x.view(words[x.element_size()])
    return torch.where(word < 0, word ^ torch.iinfo(word.dtype).max, word)
