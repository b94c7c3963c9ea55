"""Native search for the largest error of a function: all bit patterns of f32 take a minute.

A result is compared with the f64 result, which has many more digits. An error is in units in the
last place (ulp) of the exact result in the narrow type, as in `accuracy.ulp_errors`: it is infinite
if only one side is NaN, if a zero has the wrong sign, or if only one side is infinite and the other
is not the largest number.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np

from shardir.backends.cpu.codegen.compiler import compile
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.math import library
from shardir.backends.cpu.kernels.math.inline import emit_elementwise
from shardir.backends.cpu.kernels.math.registers import (
    load_elements,
    real_vector,
    register_type,
    store_elements,
    widen_elements,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    absolute_value,
    bits_of,
    float_of,
    where,
)
from tests.backends.cpu.kernels.math.elementwise_runner import Array

LANES = 16
SIGNIFICAND_BITS = {"f16": 11, "bf16": 8, "f32": 24}
"""The bits of a significand, including the implicit bit."""
MIN_EXPONENT = {"f16": -14, "bf16": -126, "f32": -126}
"""The exponents of the smallest normal numbers."""
MAX_FINITE = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}
BITS = {"f16": 16, "bf16": 16, "f32": 32}
INFINITY = float("inf")
POLES = frozenset({"lgamma", "digamma"})
"""Functions with zeros between poles at negative arguments; there, errors are in ulp of max(1,
|result|)."""


def _emit_operation(
    f: LLVMFunction, op: str, operands: list[LLVMValue], dtype: str, result: str
) -> LLVMValue:
    made = emit_elementwise(f, op, {}, operands, [dtype] * len(operands), result)
    assert made is not None, f"no rule for {op} of {dtype}"
    return real_vector(made)


def _error(
    f: LLVMFunction, got: LLVMValue, exact: LLVMValue, dtype: str, floor: LLVMValue
) -> LLVMValue:
    """Return the errors of f64 numbers in ulp of the type; the magnitude of a result is at least
    `floor`."""
    narrow = _emit_operation(f, "convert", [exact], "f64", dtype)
    near = _emit_operation(f, "convert", [narrow], dtype, "f64")
    large = f.value(MAX_FINITE[dtype], got.type)
    sized = where(absolute_value(near).is_("ogt", large), large, absolute_value(near))
    sized = where(sized.is_("olt", floor), floor, sized)
    exponent = bits_of(sized) >> 52
    low = MIN_EXPONENT[dtype] + 1023
    exponent = where(exponent.is_("slt", low), low, exponent)
    step = float_of((exponent - (SIGNIFICAND_BITS[dtype] - 1)) << 52)
    distance = absolute_value(got - exact) / step
    same_sign = (bits_of(got) ^ bits_of(exact)).is_("sge", 0)
    at_end = (
        absolute_value(got).is_("oge", large) & absolute_value(near).is_("oge", large) & same_sign
    )
    both_nan = got.is_("uno", got) & exact.is_("uno", exact)
    error = where(both_nan | at_end, 0.0, distance)
    wrong_sign = near.is_("oeq", 0.0) & got.is_("oeq", 0.0) & ~same_sign
    return where(error.is_("uno", error) | wrong_sign, INFINITY, error)


@cache
def _sweep_function(op: str, dtype: str) -> Any:
    """Return `void (i64 first, i64 count, i64 stride, ptr errors, ptr patterns)`, which finds the
    largest error of each lane.

    The patterns are `first + k * stride` for k below `count`, a multiple of the lane count.
    """
    module = LLVMModule(host_machine())
    f = LLVMFunction(module, "sweep", ["i64", "i64", "i64", "ptr", "ptr"])
    first, count, stride, errors_at, patterns_at = f.params
    wide = register_type("i64", LANES)
    lanes = ", ".join(f"i64 {lane}" for lane in range(LANES))
    lane = LLVMValue(f"<{lanes}>", wide, f)
    worst = f.variable(register_type("f64", LANES), -1.0)
    where_worst = f.variable(wide, 0)
    with f.loop(0, count, LANES) as i:
        bits = (f.splat(i, LANES) + lane) * f.splat(stride, LANES) + f.splat(first, LANES)
        short = bits.to(register_type("i32" if dtype == "f32" else "i16", LANES), "trunc")
        x = (
            short.to(register_type("f32", LANES), "bitcast")
            if dtype == "f32"
            else widen_elements(f, short, dtype)
        )
        exactly = _emit_operation(f, "convert", [x], dtype, "f64")
        exact = _emit_operation(f, op, [exactly], "f64", "f64")
        got = _emit_operation(
            f, "convert", [_emit_operation(f, op, [x], dtype, dtype)], dtype, "f64"
        )
        floor = where(exactly.is_("olt", 0.0), float(op in POLES), f.value(0.0, exact.type))
        error = _error(f, got, exact, dtype, floor)
        larger = error.is_("ogt", worst.get())
        worst.set(where(larger, error, worst.get()))
        where_worst.set(where(larger, bits, where_worst.get()))
    store_elements(f, worst.get(), errors_at, "f64")
    store_elements(f, where_worst.get(), patterns_at, "i64")
    f.ret()
    return _entry(module, "sweep", [*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 2])


@cache
def _error_function(dtype: str) -> Any:
    """Return `void (ptr got, ptr exact, ptr errors, i64 count)` for f64 numbers."""
    module = LLVMModule(host_machine())
    f = LLVMFunction(module, "judge", ["ptr", "ptr", "ptr", "i64"])
    got_at, exact_at, to, count = f.params
    with f.loop(0, count, LANES) as i:
        got, exact = (
            real_vector(load_elements(f, f.offset(at, i * 8), "f64", LANES))
            for at in (got_at, exact_at)
        )
        floor = f.value(0.0, got.type)
        store_elements(f, _error(f, got, exact, dtype, floor), f.offset(to, i * 8), "f64")
    f.ret()
    return _entry(module, "judge", [*[ctypes.c_void_p] * 3, ctypes.c_int64])


def _entry(module: LLVMModule, name: str, kinds: list[Any]) -> Any:
    code = compile(
        host_machine(),
        module.text(),
        [name],
        library.function_addresses(host_machine(), library.imported_symbols(module)),
    )
    return ctypes.CFUNCTYPE(None, *kinds)(code[name])


def largest_error(op: str, dtype: str, stride: int = 1, start: int = 0) -> tuple[float, int]:
    """Return the largest error of a function over every `stride`-th bit pattern, and that
    pattern."""
    count = -(-((1 << BITS[dtype]) - start) // stride)
    errors, patterns = np.empty(LANES), np.empty(LANES, np.int64)
    found, piece = (-1.0, 0), 1 << 24
    for first in range(0, count, piece):
        # Incomplete vectors at the end repeat earlier patterns.
        size = min(piece, count - first) // LANES * LANES or LANES
        pieces = [(first, size)]
        if size < min(piece, count - first):
            pieces.append((count - LANES, LANES))
        for k, size in pieces:
            place = errors.ctypes.data, patterns.ctypes.data
            _sweep_function(op, dtype)(start + k * stride, size, stride, *place)
            at = int(errors.argmax())
            if errors[at] > found[0]:
                found = float(errors[at]), int(patterns[at]) % (1 << BITS[dtype])
    return found


def errors_in_ulp(got: Array, exact: Array, dtype: str) -> Array:
    """Return the errors of results in ulp of `dtype`; results and exact results are f64 numbers."""
    size = got.size
    padded_size = -(-size // LANES) * LANES
    wide = [np.zeros(padded_size), np.zeros(padded_size)]
    for target, given in zip(wide, (got, exact), strict=True):
        target[:size] = given
    errors = np.empty(padded_size)
    _error_function(dtype)(*(each.ctypes.data for each in (*wide, errors)), padded_size)
    return errors[:size]
