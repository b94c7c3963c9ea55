"""Operations on integers and keys that take more than two instructions."""

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, lane_count, vector_type
from shardir.backends.cpu.kernels.math import division
from shardir.backends.cpu.kernels.math.application import OpApplication, VectorRule
from shardir.backends.cpu.kernels.math.registers import VectorValue, real_vector
from shardir.backends.cpu.kernels.math.vector_arithmetic import any_of

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def integer_power(a: OpApplication) -> VectorValue:
    """Return the power by repeated squaring while any lane has exponent bits left; products
    wrap."""
    f = a.function
    x, y = a.values
    negative = y.is_("slt", 0) if a.is_signed else None
    left = f.variable(y.type, y if negative is None else f.select(negative, 0, y))
    base, product = f.variable(x.type, x), f.variable(x.type, 1)
    with f.while_(lambda: any_of(f, left.get().is_("ne", 0))):
        exponent, square = left.get(), base.get()
        odd = (exponent & 1).is_("ne", 0)
        product.set(f.select(odd, product.get() * square, product.get()))
        base.set(square * square)
        left.set(exponent >> 1)
    result = product.get()
    if negative is None:
        return result
    turned = f.select((y & 1).is_("eq", 0), f.value(1, x.type), -1)
    inverse = f.select(x.is_("eq", 1), f.value(1, x.type), 0)
    inverse = f.select(x.is_("eq", -1), turned, inverse)
    return f.select(negative, inverse, result)


def emit_threefry(
    key: LLVMValue, first: LLVMValue, second: LLVMValue
) -> tuple[LLVMValue, LLVMValue]:
    """Return the hash of two words under a key, like `shardir.ops.random.threefry.hash_pairs`."""
    keys = [_high_word(key), _low_word(key)]
    keys.append(keys[0] ^ keys[1] ^ _PARITY)
    x, y = first + keys[0], second + keys[1]
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << by) | (y >> (32 - by))) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + (group + 1)
    return x, y


def random_hash(a: OpApplication) -> VectorValue:
    key, first, second = a.values
    return _join_words(*emit_threefry(key, first, second))


def random_fold_in(a: OpApplication) -> VectorValue:
    """Return the hash of (0, data)."""
    key, data = (real_vector(held) for held in a.operands)
    return _join_words(*emit_threefry(key, a.function.value(0, data.type), data))


def _high_word(words: LLVMValue) -> LLVMValue:
    return (words >> 32).to(vector_type("i32", lane_count(words.type)), "trunc")


def _low_word(words: LLVMValue) -> LLVMValue:
    return words.to(vector_type("i32", lane_count(words.type)), "trunc")


def _join_words(high: LLVMValue, low: LLVMValue) -> LLVMValue:
    wide = vector_type("i64", lane_count(high.type))
    return (high.to(wide, "zext") << 32) | low.to(wide, "zext")


RULES: dict[str, VectorRule] = {
    "pow": integer_power, "rem": division.remainder_rule,
    "random_hash": random_hash, "random_fold_in": random_fold_in,
}  # fmt: skip
"""Rules for operands that are integers or keys."""
