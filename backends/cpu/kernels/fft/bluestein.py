"""Transforms of any length as convolutions, computed by transforms of a length with small factors.

As 2 j k = j^2 + k^2 - (k - j)^2, point k of a transform of n points is w_k times the sum of x_j w_j
and the conjugate of w_(k-j), with w_k = exp(-pi i k^2 / n). Circular convolutions of m >= 2 n - 1
points contain these sums (L. I. Bluestein, "A linear filtering approach to the computation of the
discrete Fourier transform", IEEE Transactions on Audio and Electroacoustics 18, 1970).
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.kernels.fft.passes import (
    COMPUTE_ITEM_BYTES,
    RADICES,
    complex_product,
    factor_radices,
    fft_lanes,
    fft_vector_bytes,
    pass_nanoseconds,
    twiddle_factors,
)


@cache
def transform_length(length: int) -> int:
    """Return the length of the transforms for a length: itself, or one for the convolution."""
    if factor_radices(length) is not None:
        return length
    least = -(-(2 * length - 1) // 4) * 4
    sizes = range(least, least + least // 8 + 64, 4)
    found = (n for n in sizes if set(factor_radices(n) or (0,)) <= set(RADICES))
    return min(found, key=transform_nanoseconds)


@cache
def transform_nanoseconds(length: int) -> float:
    """Estimate the nanoseconds of transforming as many rows as there are lanes."""
    divisors = factor_radices(length)
    if divisors is None:
        return 2 * transform_nanoseconds(transform_length(length)) + 6.0 * transform_length(length)
    return 30.0 + length * (8.0 + sum(map(pass_nanoseconds, divisors)))


@cache
def chirp_factors(length: int) -> npt.NDArray[np.complex128]:
    """Return the factors of all points, and the transform of the convolution kernel divided by
    m."""
    size = transform_length(length)
    points = np.arange(length)
    factors = twiddle_factors(points * points % (2 * length), 2 * length)
    between = np.zeros(size, np.complex128)
    between[:length] = factors.conj()
    between[size - length + 1 :] = between[length - 1 : 0 : -1]
    return np.concatenate([factors, np.fft.fft(between) / size])


def define_bluestein(module: LLVMModule) -> None:
    """Define `chirped(first, other, plane, length, inner, divisors, count, table, chirp)`.

    Like `passes`, with planes for `inner` points.
    """
    params = ["ptr", "ptr", "i64", "i64", "i64", "ptr", "i64", "ptr", "ptr"]
    f = add_outlined_function(module, "chirped", params, "ptr")
    first, other, plane, length, size, divisors, count, table, factors = f.params
    kind, step = vector_type("double", fft_lanes(f.machine)), fft_vector_bytes(f.machine)

    def multiply(planes: list[LLVMValue], by: LLVMValue, points: LLVMValue) -> None:
        with f.loop(0, points) as k:
            one, other = (f.load(f.offset(each, k * step), kind, step) for each in planes)
            at = f.offset(by, k * (2 * COMPUTE_ITEM_BYTES))
            real, imag = (f.load(each, "double") for each in (at, f.offset(at, COMPUTE_ITEM_BYTES)))
            factor = f.splat(real, fft_lanes(f.machine)), f.splat(imag, fft_lanes(f.machine))
            for part, target in zip(complex_product(f, (one, other), factor), planes, strict=True):
                f.store(part, f.offset(target, k * step), step)

    planes = [first, f.offset(first, plane)]
    multiply(planes, factors, length)
    with f.loop(length, size) as k:
        for each in planes:
            f.store(f.value(0.0, kind), f.offset(each, k * step), step)
    there = f.call("passes", [first, other, size, plane, divisors, count, table], "ptr")
    planes = [there, f.offset(there, plane)]
    multiply(planes, f.offset(factors, length * (2 * COMPUTE_ITEM_BYTES)), size)
    # The inverse is a forward transform with real and imaginary parts swapped.
    free = f.select(there.is_("eq", first), other, first)
    ends = [f.offset(each, plane) for each in (there, free)]
    back = f.call("passes", [*ends, size, -plane, divisors, count, table], "ptr")
    base = f.offset(back, -plane)
    multiply([base, back], factors, length)
    f.ret(base)
