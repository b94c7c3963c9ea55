"""Integer arithmetic: unsigned numbers, for which torch lacks kernels, and the edges of division.

Unsigned numbers of 16, 32 and 64 bits are stored as such and computed as the signed numbers of the
same bits, which wrap alike.
"""

import torch
from torch import Tensor

SIGNED_WORDS = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


def as_words(x: Tensor) -> Tensor:
    """The same bits in a type that torch computes in."""
    return x.view(SIGNED_WORDS[x.dtype]) if x.dtype in SIGNED_WORDS else x


def in_order(x: Tensor) -> Tensor:
    """Numbers that compare as `x` does, in a type that torch compares in."""
    if x.dtype == torch.uint64:
        return x.view(torch.int64) ^ torch.iinfo(torch.int64).min
    if x.dtype in (torch.uint16, torch.uint32):
        return x.to(torch.int64)
    return x.to(torch.uint8) if x.dtype == torch.bool else x


def out_of_order(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Back from `in_order` to numbers of type `dtype`."""
    if dtype == torch.uint64:
        return (x ^ torch.iinfo(torch.int64).min).view(torch.uint64)
    return x.to(dtype)


def is_below(x: Tensor, y: Tensor) -> Tensor:
    """x < y of words that count as unsigned 64-bit numbers."""
    lowest = torch.iinfo(torch.int64).min
    return (x ^ lowest) < (y ^ lowest)


def divide_words(x: Tensor, y: Tensor) -> Tensor:
    """The quotient of words that count as unsigned 64-bit numbers; `y` is not 0."""
    half = (x >> 1) & torch.iinfo(torch.int64).max
    positive = torch.where(y < 0, 1, y)
    quotient = torch.div(half, positive, rounding_mode="trunc") << 1
    quotient = quotient + ~is_below(x - quotient * positive, positive)
    return torch.where(y < 0, (~is_below(x, y)).to(torch.int64), quotient)


def divide_integers(x: Tensor, y: Tensor) -> Tensor:
    """The quotient, truncated; x / 0 has all bits set, and the least number / -1 is itself."""
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
    """What division leaves, with the sign of `x`; x rem 0 is x, and the least rem -1 is 0."""
    a, b = as_words(x), as_words(y)
    safe = torch.where(b == 0, torch.ones_like(b), b).view(y.dtype)
    rest = a - as_words(divide_integers(x, safe)) * as_words(safe)
    return torch.where(b == 0, a, rest).view(x.dtype)


def power_of_integers(x: Tensor, y: Tensor) -> Tensor:
    """x to the power y by wrapping products; of negative powers the inverse, towards zero."""
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
    """Zeros come in from the right; 0 when all bits are out. Amounts count as unsigned."""
    word, steps, bits = as_words(x), as_words(amount), x.element_size() * 8
    inside = (steps >= 0) & (steps < bits)
    shifted = word << torch.where(inside, steps, 0).to(word.dtype)
    return torch.where(inside, shifted, torch.zeros_like(word)).view(x.dtype)


def shift_bits_right(x: Tensor, amount: Tensor) -> Tensor:
    """Zeros come in from the left, also for negative numbers; 0 when all bits are out."""
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
    """Copies of the highest bit come in from the left, also for unsigned numbers."""
    bits = x.element_size() * 8
    signed = x.view(torch.int8) if x.dtype == torch.uint8 else as_words(x)
    steps = as_words(amount)
    inside = (steps >= 0) & (steps < bits)
    return (signed >> torch.where(inside, steps, bits - 1).to(signed.dtype)).view(x.dtype)


def count_set_bits(x: Tensor) -> Tensor:
    """How many bits of each number are set."""
    bits = x.element_size() * 8
    word = as_words(x).to(torch.int64)
    count = torch.zeros_like(word)
    for bit in range(bits):
        count = count + ((word >> bit) & 1)
    return count.to(as_words(x).dtype).view(x.dtype)


def count_leading_zeros(x: Tensor) -> Tensor:
    """How many zero bits are above the highest bit that is set."""
    bits = x.element_size() * 8
    word = as_words(x).to(torch.int64)
    seen, count = torch.zeros_like(word), torch.zeros_like(word)
    for bit in reversed(range(bits)):
        seen = seen | ((word >> bit) & 1)
        count = count + (1 - seen)
    return count.to(as_words(x).dtype).view(x.dtype)
