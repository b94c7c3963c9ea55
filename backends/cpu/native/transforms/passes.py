"""The passes of a transform: from one half of scratch memory to the other, and back.

A transform of n = r m points is m transforms of r points, a turn of each result, and r transforms
of m points, which the next pass does. Point p + m k of a run becomes point r p + k, so that the
results are in order after the last pass (Stockham). What is done to a point is done to the whole
run of vectors that lies there: a lane each for rows of a batch, times the transforms made so far.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, vector

RADICES = (4, 3, 5, 7, 11, 13, 2)
"""In the order of the passes; there is at most one of the last."""
ITEM = 8
"""Bytes of what is computed with, f64, whatever is read and written: single numbers are rounded
once, as NumPy's and the reference's are."""
TURNS = 1 << 15
"""How many turns a program holds for long rows, at most."""
Point = tuple[Value, Value]
"""The real and the imaginary parts of vectors."""


@cache
def radices(length: int) -> tuple[int, ...] | None:
    """What the passes divide a length by; `None` where other factors are left."""
    found = []
    for radix in RADICES:
        while length % radix == 0:
            found.append(radix)
            length //= radix
    return tuple(found) if length == 1 else None


def turns(count: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.complex128]:
    """exp(-2 pi i count / length) for counts below the length, to the last place or nearly so."""
    # Angles are taken from the nearest quarter, where sines and cosines are exact.
    quarter = (8 * count + length) // (2 * length)
    right = 2 * np.arctan(np.longdouble(1))
    angle = right * (4 * count - quarter * length) / length
    made = np.empty(count.shape, np.complex128)
    made.real, made.imag = np.cos(angle), -np.sin(angle)
    made *= np.array([1, -1j, -1, 1j])[quarter % 4]
    return made


@cache
def circle(length: int) -> npt.NDArray[np.complex128]:
    """All turns of transforms of a length."""
    return turns(np.arange(length), length)


@cache
def parted(length: int) -> tuple[int, int] | None:
    """Two factors of the length of long rows, about as large; the first fills vectors."""
    if radices(length) is None or length % 2:
        return None
    found = [
        (max(n, length // n), n)
        for n in range(lanes(), length // 2 + 1, lanes())
        if length % (2 * n) == 0
    ]
    if not found:
        return None
    first = min(found)[1]
    second = length // first
    if first * (middle(second) + second // middle(second)) > TURNS:
        return None
    return first, second


@cache
def middle(length: int) -> int:
    """The divisor that is nearest to the root, from below."""
    return max(n for n in range(1, length + 1) if length % n == 0 and n * n <= length)


@cache
def between(first: int, second: int) -> npt.NDArray[np.float64]:
    """How points q of rows p are turned, exp(-2 pi i p q / (first second)), as products.

    A line for each of the q below `middle(second)`, then one for each of its multiples: the real
    parts for all p, and the imaginary ones.
    """
    fine = np.arange(middle(second))
    coarse = np.arange(0, second, len(fine))
    points = np.concatenate([fine, coarse])[:, None] * np.arange(first)
    made = turns(points, first * second)
    return np.stack([made.real, made.imag], axis=1)


@cache
def lanes() -> int:
    """How many rows are transformed at a time."""
    return host().lanes(ITEM)


def width() -> int:
    """Bytes of a point of all these rows, of its real parts or of its imaginary ones."""
    return lanes() * ITEM


def emit_passes(module: Module, known: Sequence[int]) -> None:
    """`passes(first, other, length, plane, divisors, count, table)`: where the results are.

    Points are vectors, real parts at `first` and imaginary ones `plane` bytes further on; `other`
    is as much memory. `divisors` are the radices, `count` words, of those in `known`; `table` are
    the turns.
    """
    for each in known:
        _emit_pass(module, each)
    params = ["ptr", "ptr", "i64", "i64", "ptr", "i64", "ptr"]
    f = Function(module, "passes", params, "ptr", attributes=APART, internal=True)
    first, other, length, plane, divisors, count, table = f.params
    source, target = f.variable("ptr", first), f.variable("ptr", other)
    made = f.variable("i64", 1)
    with f.loop(0, count) as number:
        radix = f.load(f.offset(divisors, number, "i64"), "i64")
        now = made.get()
        left = length // (now * radix)
        for each in known:
            with f.when(radix.is_("eq", each)):
                f.call(f"pass_{each}", [source.get(), target.get(), left, plane, now, table])
        made.set(now * radix)
        kept = source.get()
        source.set(target.get())
        target.set(kept)
    f.leave(source.get())


def _emit_pass(module: Module, radix: int) -> None:
    """`pass_RADIX(source, target, left, plane, made, table)`.

    There are `made` points in a run, and `left` times the radix runs.
    """
    params = ["ptr noalias", "ptr noalias", "i64", "i64", "i64", "ptr noalias readonly"]
    f = Function(module, f"pass_{radix}", params, attributes=APART, internal=True)
    source, target, left, plane, made, table = f.params
    whole, size = vector("double", lanes()), width()
    run = made * size

    def each(p: Value, turned: list[Point]) -> None:
        start, end = f.offset(source, p * run), f.offset(target, p * run * radix)
        with f.loop(0, run, size) as q:
            points = []
            for k in range(radix):
                at = f.offset(start, left * (run * k) + q)
                points.append((f.load(at, whole, size), f.load(f.offset(at, plane), whole, size)))
            for j, (real, imag) in enumerate(_butterfly(f, points)):
                if j and turned:
                    real, imag = product(f, (real, imag), turned[j - 1])
                at = f.offset(end, run * j + q)
                f.store(real, at, size)
                f.store(imag, f.offset(at, plane), size)

    each(f.value(0, "i64"), [])
    if radix == RADICES[-1]:
        f.leave()
        return
    with f.loop(1, left) as p:
        turned = []
        for j in range(1, radix):
            at = f.offset(table, p * made * (2 * ITEM * j))
            real, imag = f.load(at, "double"), f.load(f.offset(at, ITEM), "double")
            turned.append((f.splat(real, lanes()), f.splat(imag, lanes())))
        each(p, turned)
    f.leave()


def _less(f: Function, a: Value, b: Value, c: Value) -> Value:
    """`c - a * b`."""
    return f.fma(-a, b, c) if host().fma else c - a * b


def _more(f: Function, a: Value, b: Value, c: Value) -> Value:
    """`c + a * b`."""
    return f.fma(a, b, c) if host().fma else c + a * b


def product(f: Function, a: Point, b: Point) -> Point:
    """`a * b`."""
    return _less(f, a[1], b[1], a[0] * b[0]), _more(f, a[1], b[0], a[0] * b[1])


def _sum(a: Point, b: Point) -> Point:
    return a[0] + b[0], a[1] + b[1]


def _difference(a: Point, b: Point) -> Point:
    return a[0] - b[0], a[1] - b[1]


def _butterfly(f: Function, x: list[Point]) -> list[Point]:
    """The transform of as many points as the radix is."""
    if len(x) == 2:
        return [_sum(*x), _difference(*x)]
    if len(x) == 4:
        even = _sum(x[0], x[2]), _difference(x[0], x[2])
        odd, (real, imag) = _sum(x[1], x[3]), _difference(x[1], x[3])
        quarter = imag, -real
        return [_sum(even[0], odd), (even[1][0] + imag, even[1][1] - real),
                _difference(even[0], odd), _difference(even[1], quarter)]  # fmt: skip
    # Sums of opposite points have a real factor each, differences an imaginary one.
    radix, half = len(x), len(x) // 2
    sums = [_sum(x[k], x[radix - k]) for k in range(1, half + 1)]
    differences = [_difference(x[k], x[radix - k]) for k in range(1, half + 1)]
    first = x[0]
    for each in sums:
        first = _sum(first, each)
    made = [first] * radix
    table = circle(radix)
    for j in range(1, half + 1):
        factors = [table[j * k % radix] for k in range(1, half + 1)]
        real, imag = x[0]
        for factor, each in zip(factors, sums, strict=True):
            by = f.value(float(factor.real), real.type)
            real, imag = _more(f, each[0], by, real), _more(f, each[1], by, imag)
        across = [f.value(float(-factor.imag), real.type) for factor in factors]
        down, up = (differences[0][plane] * across[0] for plane in (0, 1))
        for by, each in zip(across[1:], differences[1:], strict=True):
            down, up = _more(f, each[0], by, down), _more(f, each[1], by, up)
        made[j] = real + up, imag - down
        made[radix - j] = real - up, imag + down
    return made
