"""Operations on integers and keys that take more than two instructions."""

from shardir.backends.cpu.native.llvm.text import Value, lanes, vector
from shardir.backends.cpu.native.vector import division
from shardir.backends.cpu.native.vector.application import Application, Rule
from shardir.backends.cpu.native.vector.arithmetic import any_of
from shardir.backends.cpu.native.vector.registers import Held, single

_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def power(a: Application) -> Held:
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


def threefry(key: Value, first: Value, second: Value) -> tuple[Value, Value]:
    """Return the hash of two words under a key, like `shardir.threefry.hash_pairs`."""
    keys = [_high(key), _low(key)]
    keys.append(keys[0] ^ keys[1] ^ _PARITY)
    x, y = first + keys[0], second + keys[1]
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << by) | (y >> (32 - by))) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + (group + 1)
    return x, y


def random_hash(a: Application) -> Held:
    key, first, second = a.values
    return _joined(*threefry(key, first, second))


def random_fold_in(a: Application) -> Held:
    """Return the hash of (0, data)."""
    key, data = (single(held) for held in a.operands)
    return _joined(*threefry(key, a.function.value(0, data.type), data))


def _high(words: Value) -> Value:
    return (words >> 32).to(vector("i32", lanes(words.type)), "trunc")


def _low(words: Value) -> Value:
    return words.to(vector("i32", lanes(words.type)), "trunc")


def _joined(high: Value, low: Value) -> Value:
    wide = vector("i64", lanes(high.type))
    return (high.to(wide, "zext") << 32) | low.to(wide, "zext")


RULES: dict[str, Rule] = {
    "pow": power, "rem": division.rem,
    "random_hash": random_hash, "random_fold_in": random_fold_in,
}  # fmt: skip
"""Rules for operands that are integers or keys."""
