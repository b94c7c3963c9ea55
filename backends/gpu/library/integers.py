"""Integer arithmetic: unsigned types, for which torch lacks kernels, and division by zero.

Unsigned integers of 16, 32 and 64 bits are stored in their type and computed as signed integers of
the same width, which wrap alike.
"""

import torch
from torch import Tensor

SIGNED_WORDS = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


def as_words(x: Tensor) -> Tensor:
    """Return the same bits in a type in which torch computes."""
    return x.view(SIGNED_WORDS[x.dtype]) if x.dtype in SIGNED_WORDS else x


def in_order(x: Tensor) -> Tensor:
    """Map integers and bools to integers of the same order, in a type in which torch compares."""
    if x.dtype == torch.uint64:
        return x.view(torch.int64) ^ torch.iinfo(torch.int64).min
    if x.dtype in (torch.uint16, torch.uint32):
        return x.to(torch.int64)
    return x.to(torch.uint8) if x.dtype == torch.bool else x


def out_of_order(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Invert `in_order`, to type `dtype`."""
    if dtype == torch.uint64:
        return (x ^ torch.iinfo(torch.int64).min).view(torch.uint64)
    return x.to(dtype)


def is_below(x: Tensor, y: Tensor) -> Tensor:
    """Return x < y of 64-bit words compared as unsigned."""
    lowest = torch.iinfo(torch.int64).min
    return (x ^ lowest) < (y ^ lowest)


def divide_words(x: Tensor, y: Tensor) -> Tensor:
    """Return the quotient of 64-bit words as unsigned integers; `y` is not 0."""
    half = (x >> 1) & torch.iinfo(torch.int64).max
    positive = torch.where(y < 0, 1, y)
    quotient = torch.div(half, positive, rounding_mode="trunc") << 1
    quotient = quotient + ~is_below(x - quotient * positive, positive)
    return torch.where(y < 0, (~is_below(x, y)).to(torch.int64), quotient)


def divide_integers(x: Tensor, y: Tensor) -> Tensor:
    """Return the truncated quotient; x / 0 has all bits set, and the minimum / -1 is
    the minimum.
    """
    a, b = as_words(x), as_words(y)
    safe = torch.where(b == 0, 1, b)
    if x.dtype == torch.uint64:
        quotient = divide_words(a, safe)
    elif x.dtype in (torch.uint16, torch.uint32):
        wide = torch.div(in_order(x), in_order(safe.view(x.dtype)), rounding_mode="trunc")
        quotient = wide.to(a.dtype)
    elif x.dtype == torch.uint8:
        quotient = torch.div(a, safe, rounding_mode="trunc")
    else:
        other = torch.where(safe == -1, 1, safe)
        quotient = torch.where(safe == -1, -a, torch.div(a, other, rounding_mode="trunc"))
    return torch.where(b == 0, torch.full_like(a, -1 if a.dtype != torch.uint8 else 255), quotient
                       ).view(x.dtype)  # fmt: skip


def remainder_of_integers(x: Tensor, y: Tensor) -> Tensor:
    """Return the remainder with the sign of `x`; x rem 0 is x, and the minimum rem -1 is 0."""
    a, b = as_words(x), as_words(y)
    safe = torch.where(b == 0, torch.ones_like(b), b).view(y.dtype)
    rest = a - as_words(divide_integers(x, safe)) * as_words(safe)
    return torch.where(b == 0, a, rest).view(x.dtype)


def power_of_integers(x: Tensor, y: Tensor) -> Tensor:
    """Return x to the power y, wrapping; a negative power is the inverse, truncated to zero."""
    base, exponent = as_words(x), as_words(y)
    product = torch.ones_like(base)
    for bit in range(x.element_size() * 8):
        odd = ((exponent >> bit) & 1) == 1
        product = torch.where(odd, product * base, product)
        base = base * base
    if not x.dtype.is_signed:
        return product.view(x.dtype)
    sign = torch.where((y & 1) == 0, torch.ones_like(x), torch.full_like(x, -1))
    inverse = torch.where(x == 1, 1, torch.where(x == -1, sign, torch.zeros_like(x)))
    return torch.where(y < 0, inverse, product)


def shift_bits_left(x: Tensor, amount: Tensor) -> Tensor:
    """Shift left; 0 if the amount, taken as unsigned, is at least the bit width."""
    word, steps, bits = as_words(x), as_words(amount), x.element_size() * 8
    inside = (steps >= 0) & (steps < bits)
    shifted = word << torch.where(inside, steps, 0).to(word.dtype)
    return torch.where(inside, shifted, torch.zeros_like(word)).view(x.dtype)


def shift_bits_right(x: Tensor, amount: Tensor) -> Tensor:
    """Shift right logically; 0 if the amount, taken as unsigned, is at least the bit width."""
    word, steps, bits = as_words(x), as_words(amount), x.element_size() * 8
    inside = (steps >= 0) & (steps < bits)
    within = torch.where(inside, steps, 0).to(torch.int64)
    if bits == 64:
        ones = torch.where(within == 0, -1, (1 << (64 - within)) - 1)
        shifted = (word >> within) & ones
    else:
        shifted = ((word.to(torch.int64) & ((1 << bits) - 1)) >> within).to(word.dtype)
    return torch.where(inside, shifted, torch.zeros_like(word)).view(x.dtype)


def shift_sign_right(x: Tensor, amount: Tensor) -> Tensor:
    """Shift right arithmetically, also for unsigned types."""
    bits = x.element_size() * 8
    signed = x.view(torch.int8) if x.dtype == torch.uint8 else as_words(x)
    steps = as_words(amount)
    inside = (steps >= 0) & (steps < bits)
    return (signed >> torch.where(inside, steps, bits - 1).to(signed.dtype)).view(x.dtype)


def count_set_bits(x: Tensor) -> Tensor:
    """Return the number of set bits of each element."""
    bits = x.element_size() * 8
    word = as_words(x).to(torch.int64)
    count = torch.zeros_like(word)
    for bit in range(bits):
        count = count + ((word >> bit) & 1)
    return count.to(as_words(x).dtype).view(x.dtype)


def count_leading_zeros(x: Tensor) -> Tensor:
    """Return the number of zero bits above the highest set bit."""
    bits = x.element_size() * 8
    word = as_words(x).to(torch.int64)
    seen, count = torch.zeros_like(word), torch.zeros_like(word)
    for bit in reversed(range(bits)):
        seen = seen | ((word >> bit) & 1)
        count = count + (1 - seen)
    return count.to(as_words(x).dtype).view(x.dtype)
