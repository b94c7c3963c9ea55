"""Errors of very many results, found by machine code: all bit patterns of f32 in a minute.

A result is held against the exact one, which f64 has to far more digits. An error is in units of
the last place (ulp) of the exact result in the narrow type, as `accuracy.errors` counts them:
infinite where one is NaN and the other is not, where a zero has the wrong sign, and where one is
infinite and the other is not at the end of the numbers.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np

from shardir.backends.cpu.codegen.compiler import compile
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
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
MANTISSA = {"f16": 11, "bf16": 8, "f32": 24}
"""Bits of a significand, the hidden one too."""
LEAST = {"f16": -14, "bf16": -126, "f32": -126}
"""Exponents of the least normal numbers."""
MOST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}
BITS = {"f16": 16, "bf16": 16, "f32": 32}
INFINITY = float("inf")
POLES = frozenset({"lgamma", "digamma"})
"""What has zeros between poles left of 0: errors there are in ulp of max(1, |result|)."""


def _one(f: LLVMFunction, op: str, operands: list[LLVMValue], dtype: str, result: str) -> LLVMValue:
    made = emit_elementwise(f, op, {}, operands, [dtype] * len(operands), result)
    assert made is not None, f"no rule for {op} of {dtype}"
    return real_vector(made)


def _error(
    f: LLVMFunction, got: LLVMValue, exact: LLVMValue, dtype: str, floor: LLVMValue
) -> LLVMValue:
    """The errors of f64 numbers that the type has; a result counts as no smaller than `floor`."""
    narrow = _one(f, "convert", [exact], "f64", dtype)
    near = _one(f, "convert", [narrow], dtype, "f64")
    large = f.value(MOST[dtype], got.type)
    sized = where(absolute_value(near).is_("ogt", large), large, absolute_value(near))
    sized = where(sized.is_("olt", floor), floor, sized)
    exponent = bits_of(sized) >> 52
    low = LEAST[dtype] + 1023
    exponent = where(exponent.is_("slt", low), low, exponent)
    step = float_of((exponent - (MANTISSA[dtype] - 1)) << 52)
    apart = absolute_value(got - exact) / step
    same_sign = (bits_of(got) ^ bits_of(exact)).is_("sge", 0)
    at_end = (
        absolute_value(got).is_("oge", large) & absolute_value(near).is_("oge", large) & same_sign
    )
    both_nan = got.is_("uno", got) & exact.is_("uno", exact)
    error = where(both_nan | at_end, 0.0, apart)
    turned = near.is_("oeq", 0.0) & got.is_("oeq", 0.0) & ~same_sign
    return where(error.is_("uno", error) | turned, INFINITY, error)


@cache
def _sweeper(op: str, dtype: str) -> Any:
    """`void (i64 first, i64 count, i64 stride, ptr errors, ptr patterns)`: the worst of each lane.

    The patterns are `first + k * stride` for k below `count`, which is a multiple of the lanes.
    """
    module = LLVMModule()
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
        exactly = _one(f, "convert", [x], dtype, "f64")
        exact = _one(f, op, [exactly], "f64", "f64")
        got = _one(f, "convert", [_one(f, op, [x], dtype, dtype)], dtype, "f64")
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
def _judge(dtype: str) -> Any:
    """`void (ptr got, ptr exact, ptr errors, i64 count)` of f64 numbers."""
    module = LLVMModule()
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
        module.text(), [name], library.function_addresses(library.imported_symbols(module))
    )
    return ctypes.CFUNCTYPE(None, *kinds)(code[name])


def worst_of(op: str, dtype: str, stride: int = 1, start: int = 0) -> tuple[float, int]:
    """The largest error of a function over every so-many-th bit pattern, and the pattern."""
    count = -(-((1 << BITS[dtype]) - start) // stride)
    errors, patterns = np.empty(LANES), np.empty(LANES, np.int64)
    found, piece = (-1.0, 0), 1 << 24
    for first in range(0, count, piece):
        # The last patterns are taken twice where they do not fill all lanes.
        size = min(piece, count - first) // LANES * LANES or LANES
        pieces = [(first, size)]
        if size < min(piece, count - first):
            pieces.append((count - LANES, LANES))
        for k, size in pieces:
            place = errors.ctypes.data, patterns.ctypes.data
            _sweeper(op, dtype)(start + k * stride, size, stride, *place)
            at = int(errors.argmax())
            if errors[at] > found[0]:
                found = float(errors[at]), int(patterns[at]) % (1 << BITS[dtype])
    return found


def judged(got: Array, exact: Array, dtype: str) -> Array:
    """The errors of results, given in f64 as the exact ones are, in ulp of `dtype`."""
    size = got.size
    whole = -(-size // LANES) * LANES
    wide = [np.zeros(whole), np.zeros(whole)]
    for target, given in zip(wide, (got, exact), strict=True):
        target[:size] = given
    errors = np.empty(whole)
    _judge(dtype)(*(each.ctypes.data for each in (*wide, errors)), whole)
    return errors[:size]
