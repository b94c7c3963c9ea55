"""Cumulative sums and extremes of integers along contiguous lines, one vector at a time.

Integer combinations are associative, so that a vector's elements are combined with those 1, 2, 4,
... lanes below (W. Hillis and G. Steele, 1986), and then with the total before the vector. The
dependency chain has only one combination per vector.
"""

from functools import partial

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value, element, lanes
from shardir.backends.cpu.native.moves import numbers
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.grid import Block


def is_any_order(combine: str, dtype: str) -> bool:
    """Return whether the order of combinations does not affect any bit of the result."""
    return combine in ("add", "max", "min") and dtype[0] in "iu"


def walk(combine: str, dtype: str, f: Function, block: Block) -> None:
    """Scan lines one by one; they are the columns of the block."""
    kind, size = numbers.kind_of(dtype), numbers.SIZES[dtype]
    wide, steps = host().lanes(size), block.extra(0)
    identity_value = numbers.identity(combine, dtype)
    with f.loop(0, block.columns) as number:
        source, target = (
            f.offset(address, number * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        before, position = f.variable(kind.type, identity_value), f.variable("i64", 0)
        for count in (wide, 1):
            with f.while_(partial(fits, position, steps, count)):
                at = position.get() * size
                scanned = numbers.load(f, f.offset(source, at), kind, count)
                if count > 1:
                    scanned = _within(f, combine, dtype, scanned)
                total = before.get()
                result = numbers.combine(f, combine, f.splat(total, count), scanned, dtype)
                numbers.store(f, result, f.offset(target, at), kind)
                last = _last(f, scanned) if count > 1 else scanned
                before.set(numbers.combine(f, combine, total, last, dtype))
                position.set(position.get() + count)


def _within(f: Function, combine: str, dtype: str, value: Value) -> Value:
    """Return the inclusive scan of the elements of a vector."""
    count, below = lanes(value.type), 1
    identity_value = f.value(numbers.identity(combine, dtype), value.type)
    while below < count:
        lower = f.shuffle(identity_value, value, range(count - below, 2 * count - below))
        value = numbers.combine(f, combine, lower, value, dtype)
        below *= 2
    return value


def _last(f: Function, value: Value) -> Value:
    place = lanes(value.type) - 1
    return f.emit(f"extractelement {value.type} {value}, i64 {place}", element(value.type))
