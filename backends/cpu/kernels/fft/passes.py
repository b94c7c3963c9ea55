"""The passes of a transform, between the two halves of scratch memory.

A transform of n = r m points is m transforms of r points, multiplications by twiddle factors, and r
transforms of m points, which the next pass does. Point p + m k of a run becomes point r p + k, so
that the results are in order after the last pass (Stockham). Each step on a point is a step on a
run of vectors: one lane for each row of a batch, times the transforms made so far.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription

RADICES = (4, 3, 5, 7, 11, 13, 2)
"""Radices in the order of the passes; the last occurs at most once."""
MAX_PRIME_FACTOR = 199
"""The greatest prime factor with a pass. Factors that are not in `RADICES` come first."""
TERMS_PER_PARTIAL_SUM = 8
"""Terms of a partial sum, which limits rounding errors."""
COMPUTE_ITEM_BYTES = 8
"""Bytes of the f64 elements that are computed with for all dtypes: f32 results are rounded once, as
NumPy and the reference do."""
MAX_TWIDDLE_FACTORS = 1 << 15
"""The most twiddle factors that a program stores for long rows."""
ComplexVectors = tuple[LLVMValue, LLVMValue]
"""The real and the imaginary parts of vectors."""


@cache
def factor_radices(length: int) -> tuple[int, ...] | None:
    """Return the radices of the passes of a length; `None` if a greater prime factor remains."""
    found, large = [], []
    for radix in RADICES:
        while length % radix == 0:
            found.append(radix)
            length //= radix
    for radix in range(max(RADICES) + 2, MAX_PRIME_FACTOR + 1, 2):
        while length % radix == 0:
            large.append(radix)
            length //= radix
    return (*large, *found) if length == 1 else None


def pass_kinds(divisors: Sequence[int]) -> list[int]:
    """Return the radices whose passes a program defines; 0 stands for the pass of large radices."""
    return sorted({2, 4, *(each if each in RADICES else 0 for each in divisors)})


def pass_nanoseconds(radix: int) -> float:
    """Estimate the nanoseconds of a pass for one point of each lane."""
    return max(3.0, 0.3 * radix)


def twiddle_factors(count: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.complex128]:
    """Return exp(-2 pi i count / length) for counts below the length, accurate to about the last
    bit."""
    # Angles are reduced to the nearest quarter turn, where sines and cosines are exact.
    quarter = (8 * count + length) // (2 * length)
    right = 2 * np.arctan(np.longdouble(1))
    angle = right * (4 * count - quarter * length) / length
    result = np.empty(count.shape, np.complex128)
    result.real, result.imag = np.cos(angle), -np.sin(angle)
    result *= np.array([1, -1j, -1, 1j])[quarter % 4]
    return result


@cache
def unit_roots(length: int) -> npt.NDArray[np.complex128]:
    """Return all twiddle factors of a length."""
    return twiddle_factors(np.arange(length), length)


@cache
def factor_long_rows(length: int, lanes: int) -> tuple[int, int] | None:
    """Return two factors of the length of long rows of similar size; the first is a multiple of the
    lanes."""
    # first * (a + b) is at least 2 * sqrt(length) for all factorizations first * a * b of a length,
    # so longer ones need no search.
    if 4 * length > MAX_TWIDDLE_FACTORS**2 or factor_radices(length) is None or length % 2:
        return None
    found = [
        (max(n, length // n), n)
        for n in range(lanes, length // 2 + 1, lanes)
        if length % (2 * n) == 0
    ]
    if not found:
        return None
    first = min(found)[1]
    second = length // first
    if (
        first * (largest_divisor_below_root(second) + second // largest_divisor_below_root(second))
        > MAX_TWIDDLE_FACTORS
    ):
        return None
    return first, second


@cache
def largest_divisor_below_root(length: int) -> int:
    """Return the largest divisor that is at most the square root."""
    return max(n for n in range(1, length + 1) if length % n == 0 and n * n <= length)


@cache
def split_twiddle_table(first: int, second: int) -> npt.NDArray[np.float64]:
    """Return the twiddle factors exp(-2 pi i p q / (first second)) of points q of rows p as
    products.

    There is a line for each q below `largest_divisor_below_root(second)`, then one for each of its
    multiples: the real parts for all p, and the imaginary parts.
    """
    fine = np.arange(largest_divisor_below_root(second))
    coarse = np.arange(0, second, len(fine))
    points = np.concatenate([fine, coarse])[:, None] * np.arange(first)
    result = twiddle_factors(points, first * second)
    return np.stack([result.real, result.imag], axis=1)


def fft_lanes(machine: HostDescription) -> int:
    """Return how many rows are transformed at a time."""
    return machine.lanes(COMPUTE_ITEM_BYTES)


def fft_vector_bytes(machine: HostDescription) -> int:
    """Return the bytes of one point of all of these rows, of its real or of its imaginary parts."""
    return fft_lanes(machine) * COMPUTE_ITEM_BYTES


def define_passes(module: LLVMModule, known: Sequence[int]) -> None:
    """Define `passes(first, other, length, plane, divisors, count, table)`: returns the results'
    address.

    Points are vectors, real parts at `first` and imaginary ones `plane` bytes later; `other` is a
    second buffer of that size. `divisors` are `count` radices of the kinds in `known`; `table` are
    the twiddle factors.
    """
    for each in known:
        if each:
            _define_pass(module, each)
        else:
            _define_large_pass(module)
    params = ["ptr", "ptr", "i64", "i64", "ptr", "i64", "ptr"]
    f = add_outlined_function(module, "passes", params, "ptr")
    first, other, length, plane, divisors, count, table = f.params
    source, target = f.variable("ptr", first), f.variable("ptr", other)
    run_length = f.variable("i64", 1)
    with f.loop(0, count) as number:
        radix = f.load(f.offset(divisors, number, "i64"), "i64")
        now = run_length.get()
        left = length // (now * radix)
        common_args = [source.get(), target.get(), left, plane, now, table]
        for each in known:
            chosen = radix.is_("eq", each) if each else radix.is_("ugt", max(RADICES))
            with f.when(chosen):
                f.call(f"pass_{each}", common_args if each else [*common_args, radix])
        run_length.set(now * radix)
        kept = source.get()
        source.set(target.get())
        target.set(kept)
    f.ret(source.get())


def _define_pass(module: LLVMModule, radix: int) -> None:
    """Define `pass_RADIX(source, target, left, plane, run_length, table)`.

    There are `run_length` points in a run, and `left * RADIX` runs.
    """
    params = ["ptr noalias", "ptr noalias", "i64", "i64", "i64", "ptr noalias readonly"]
    f = add_outlined_function(module, f"pass_{radix}", params)
    source, target, left, plane, run_length, table = f.params
    whole, size = vector_type("double", fft_lanes(f.machine)), fft_vector_bytes(f.machine)
    run = run_length * size

    def each(p: LLVMValue, twiddles: list[ComplexVectors]) -> None:
        start, end = f.offset(source, p * run), f.offset(target, p * run * radix)
        with f.loop(0, run, size) as q:
            points = []
            for k in range(radix):
                at = f.offset(start, left * (run * k) + q)
                points.append((f.load(at, whole, size), f.load(f.offset(at, plane), whole, size)))
            for j, (real, imag) in enumerate(_butterfly(f, points)):
                if j and twiddles:
                    real, imag = complex_product(f, (real, imag), twiddles[j - 1])
                at = f.offset(end, run * j + q)
                f.store(real, at, size)
                f.store(imag, f.offset(at, plane), size)

    each(f.value(0, "i64"), [])
    if radix == RADICES[-1]:
        f.ret()
        return
    with f.loop(1, left) as p:
        twiddles = []
        for j in range(1, radix):
            at = f.offset(table, p * run_length * (2 * COMPUTE_ITEM_BYTES * j))
            real, imag = f.load(at, "double"), f.load(f.offset(at, COMPUTE_ITEM_BYTES), "double")
            twiddles.append(
                (f.splat(real, fft_lanes(f.machine)), f.splat(imag, fft_lanes(f.machine)))
            )
        each(p, twiddles)
    f.ret()


def _define_large_pass(module: LLVMModule) -> None:
    """Define `pass_0(source, target, left, plane, run_length, table, radix)` for any odd radix.

    Sums and differences of opposite points overwrite these; see `_butterfly`.
    """
    params = ["ptr noalias", "ptr noalias", "i64", "i64", "i64", "ptr noalias readonly", "i64"]
    f = add_outlined_function(module, "pass_0", params)
    source, target, left, plane, run_length, table, radix = f.params
    whole, size = vector_type("double", fft_lanes(f.machine)), fft_vector_bytes(f.machine)
    run, end = run_length * size, (radix >> 1) + 1
    zero = f.value(0.0, whole)

    def load(at: LLVMValue) -> ComplexVectors:
        return f.load(at, whole, size), f.load(f.offset(at, plane), whole, size)

    def store(point: ComplexVectors, at: LLVMValue) -> None:
        f.store(point[0], at, size)
        f.store(point[1], f.offset(at, plane), size)

    def turn(number: LLVMValue) -> ComplexVectors:
        at = f.offset(table, number * (2 * COMPUTE_ITEM_BYTES))
        real, imag = f.load(at, "double"), f.load(f.offset(at, COMPUTE_ITEM_BYTES), "double")
        return f.splat(real, fft_lanes(f.machine)), f.splat(imag, fft_lanes(f.machine))

    with f.loop(0, left) as p, f.loop(0, run, size) as q:
        start, results = f.offset(source, p * run + q), f.offset(target, p * run * radix + q)

        def opposite(k: LLVMValue) -> list[LLVMValue]:
            return [f.offset(start, left * run * each) for each in (k, radix - k)]

        first = load(start)
        total = [f.variable(whole, part) for part in first]
        with f.loop(1, end) as k:
            pair = opposite(k)
            one, other = map(load, pair)
            both = _complex_sum(one, other)
            store(both, pair[0])
            store(_complex_difference(one, other), pair[1])
            for each, part in zip(total, both, strict=True):
                each.set(each.get() + part)
        store((total[0].get(), total[1].get()), results)
        with f.loop(1, end, 2) as j:
            # Two points at a time share their loads; an odd last one is computed twice.
            numbers = [j, f.umin(j + 1, end - 1)]
            sums = [[f.variable(whole, part) for part in (*first, zero, zero)] for _ in numbers]
            places = [f.variable("i64", 0) for _ in numbers]
            with f.loop(1, end, TERMS_PER_PARTIAL_SUM) as k:
                parts = [[f.variable(whole, zero) for _ in sums[0]] for _ in numbers]
                with f.loop(k, f.umin(end, k + TERMS_PER_PARTIAL_SUM)) as here:
                    pair = [part for at in opposite(here) for part in load(at)]
                    for number, place, made_of in zip(numbers, places, parts, strict=True):
                        now = place.get() + number
                        now = f.select(now.is_("slt", radix), now, now - radix)
                        place.set(now)
                        real, imag = turn(now * left * run_length)
                        for each, factor, part in zip(
                            made_of, (real, real, imag, imag), pair, strict=True
                        ):
                            each.set(_emit_multiply_add(f, factor, part, each.get()))
                for total_of, made_of in zip(sums, parts, strict=True):
                    for each, share in zip(total_of, made_of, strict=True):
                        each.set(each.get() + share.get())
            for number, total_of in zip(numbers, sums, strict=True):
                real, imag, down, up = (each.get() for each in total_of)
                for row, point in (
                    (number, (real - up, imag + down)),
                    (radix - number, (real + up, imag - down)),
                ):
                    made_there = complex_product(f, point, turn(p * run_length * row))
                    store(made_there, f.offset(results, run * row))
    f.ret()


def _emit_multiply_subtract(f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
    """Return `c - a * b`."""
    return f.fma(-a, b, c) if f.machine.fma else c - a * b


def _emit_multiply_add(f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
    """Return `c + a * b`."""
    return f.fma(a, b, c) if f.machine.fma else c + a * b


def complex_product(f: LLVMFunction, a: ComplexVectors, b: ComplexVectors) -> ComplexVectors:
    """Return the complex product `a * b`."""
    return _emit_multiply_subtract(f, a[1], b[1], a[0] * b[0]), _emit_multiply_add(
        f, a[1], b[0], a[0] * b[1]
    )


def _complex_sum(a: ComplexVectors, b: ComplexVectors) -> ComplexVectors:
    return a[0] + b[0], a[1] + b[1]


def _complex_difference(a: ComplexVectors, b: ComplexVectors) -> ComplexVectors:
    return a[0] - b[0], a[1] - b[1]


def _butterfly(f: LLVMFunction, x: list[ComplexVectors]) -> list[ComplexVectors]:
    """Return the transform of as many points as the radix."""
    if len(x) == 2:
        return [_complex_sum(*x), _complex_difference(*x)]
    if len(x) == 4:
        even = _complex_sum(x[0], x[2]), _complex_difference(x[0], x[2])
        odd, (real, imag) = _complex_sum(x[1], x[3]), _complex_difference(x[1], x[3])
        quarter = imag, -real
        return [
            _complex_sum(even[0], odd),
            (even[1][0] + imag, even[1][1] - real),
            _complex_difference(even[0], odd),
            _complex_difference(even[1], quarter),
        ]
    # Sums of opposite points have real factors, differences imaginary ones.
    radix, half = len(x), len(x) // 2
    sums = [_complex_sum(x[k], x[radix - k]) for k in range(1, half + 1)]
    differences = [_complex_difference(x[k], x[radix - k]) for k in range(1, half + 1)]
    first = x[0]
    for each in sums:
        first = _complex_sum(first, each)
    result = [first] * radix
    table = unit_roots(radix)
    for j in range(1, half + 1):
        factors = [table[j * k % radix] for k in range(1, half + 1)]
        real, imag = x[0]
        for factor, each in zip(factors, sums, strict=True):
            by = f.value(float(factor.real), real.type)
            real, imag = (
                _emit_multiply_add(f, each[0], by, real),
                _emit_multiply_add(f, each[1], by, imag),
            )
        across = [f.value(float(-factor.imag), real.type) for factor in factors]
        down, up = (differences[0][plane] * across[0] for plane in (0, 1))
        for by, each in zip(across[1:], differences[1:], strict=True):
            down, up = (
                _emit_multiply_add(f, each[0], by, down),
                _emit_multiply_add(f, each[1], by, up),
            )
        result[j] = real + up, imag - down
        result[radix - j] = real - up, imag + down
    return result
