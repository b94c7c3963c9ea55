"""Cumulative sums and extremes of integers along contiguous lines, one vector at a time.

Integer combinations are associative, so that a vector's elements are combined with those 1, 2, 4,
... lanes below (W. Hillis and G. Steele, 1986), and then with the total before the vector. The
dependency chain has only one combination per vector.
"""

from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, element_type, lane_count
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.ir.dtypes import INTEGERS


def is_order_free(combine: str, dtype: str) -> bool:
    """Return whether the order of combinations does not affect any bit of the result."""
    return combine in ("add", "max", "min") and dtype in INTEGERS


def scan_lines(combine: str, dtype: str, f: LLVMFunction, block: GridBlock) -> None:
    """Scan lines one by one; they are the columns of the block."""
    kind, size = element_values.kind_of(dtype), element_values.ELEMENT_BYTES[dtype]
    wide, steps = f.machine.lanes(size), block.extra(0)
    identity_value = element_values.identity_element(combine, dtype)
    with f.loop(0, block.columns) as number:
        source, target = (
            f.offset(address, number * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        before, position = f.variable(kind.type, identity_value), f.variable("i64", 0)
        for count in (wide, 1):
            with f.while_(partial(fits_before, position, steps, count)):
                at = position.get() * size
                scanned = element_values.load(f, f.offset(source, at), kind, count)
                if count > 1:
                    scanned = _scan_vector(f, combine, dtype, scanned)
                total = before.get()
                result = element_values.combine(f, combine, f.splat(total, count), scanned, dtype)
                element_values.store(f, result, f.offset(target, at), kind)
                last = _last_lane(f, scanned) if count > 1 else scanned
                before.set(element_values.combine(f, combine, total, last, dtype))
                position.set(position.get() + count)


def _scan_vector(f: LLVMFunction, combine: str, dtype: str, value: LLVMValue) -> LLVMValue:
    """Return the inclusive scan of the elements of a vector."""
    count, below = lane_count(value.type), 1
    identity_value = f.value(element_values.identity_element(combine, dtype), value.type)
    while below < count:
        lower = f.shuffle(identity_value, value, range(count - below, 2 * count - below))
        value = element_values.combine(f, combine, lower, value, dtype)
        below *= 2
    return value


def _last_lane(f: LLVMFunction, value: LLVMValue) -> LLVMValue:
    place = lane_count(value.type) - 1
    return f.emit(f"extractelement {value.type} {value}, i64 {place}", element_type(value.type))
