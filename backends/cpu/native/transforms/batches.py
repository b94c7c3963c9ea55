"""Transform the rows of a batch, one dimension after the other."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Phase, Rule, View, packed
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.backends.cpu.native.transforms.chirps import chirp, cost, emit_chirped, inner
from shardir.backends.cpu.native.transforms.passes import (
    between,
    circle,
    emit_passes,
    kinds,
    lanes,
    middle,
    parted,
    product,
    radices,
    width,
)
from shardir.backends.cpu.native.transforms.rows import Rows, lying
from shardir.ir import Op
from shardir.types import COMPLEX, COMPLEX_OF, TensorType

FEW, SHORT, DEAR = 2, 1 << 10, 24_000
"""If rows are longer, or take more nanoseconds, at least half of the lanes must be used: NumPy is
as fast otherwise."""


def fft_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower an FFT to one phase for each dimension, or return `None` if scratch memory is too
    small."""
    (x,), (result,) = operands, results
    kind, rank = str(op.attrs["kind"]), op.attrs["rank"]
    if result.size == 0:
        return []
    dims = list(range(len(x.shape) - rank, len(x.shape)))
    lengths = (result if kind == "irfft" else x).shape
    if rank == 1 and (_few(result, dims[0], lengths[-1]) or not _held(lengths[-1])):
        phases = long_rows(kind, x, result, context)
        if phases is not None:
            return phases
    if not all(_held(lengths[d]) and not _few(result, d, lengths[d], FEW) for d in dims):
        return None
    inverse = kind[0] == "i"
    if kind == "irfft" and rank > 1:
        type = TensorType(x.shape, x.dtype)
        temporary = View(context.temporary(x.nbytes), 0, x.shape, packed(type), x.dtype)
    else:
        temporary = result
    # The last dimension converts between real and complex: first in `rfft`, last in `irfft`.
    steps = []
    for d in dims if kind == "irfft" else reversed(dims):
        target = result if d == dims[-1] else temporary
        scale = 1 / lengths[d] if inverse else 1.0
        if x.dtype in COMPLEX_OF and lengths[d] % 2 == 0:
            steps.append(along(_paired(x), target, d, lengths[d] // 2, False, 1.0, context,
                               halved=True))  # fmt: skip
        else:
            steps.append(along(x, target, d, lengths[d], inverse, scale, context))
        x = target
    return steps


def _held(length: int) -> bool:
    """Return whether scratch memory holds rows of this length."""
    most = SCRATCH_BYTES // (4 * width())
    return length <= most and inner(length) <= most


def _few(result: View, dim: int, length: int, share: int = 1) -> bool:
    """Return whether rows are long and too few for the lanes, or for `1/share` of them."""
    rows = prod(n for d, n in enumerate(result.shape) if d != dim)
    return share * rows < lanes() and (length > SHORT or cost(length) > DEAR)


def _paired(x: View) -> View:
    """View adjacent elements of the last dimension as complex; the even ones if they are not
    contiguous."""
    strides = (*x.strides[:-1], 2 * x.strides[-1])
    dtype = COMPLEX_OF[x.dtype] if x.strides[-1] == x.itemsize else x.dtype
    return x._replace(shape=(*x.shape[:-1], x.shape[-1] // 2), strides=strides, dtype=dtype)


def long_rows(kind: str, x: View, result: View, context: Context) -> list[Phase] | None:
    """Transform rows of n = a b points that are long or few: b transforms of a points, then a of b
    points.

    Between them, point q of the p-th row is multiplied by the twiddle factor of p q / n.
    """
    length = x.shape[-1]
    divided = parted(length)
    if kind == "irfft" or divided is None:
        return None
    first, second = divided
    batch, inverse = x.shape[:-1], kind == "ifft"
    shape = (*batch, first, second)
    given = x._replace(
        shape=shape, strides=(*x.strides[:-1], second * x.strides[-1], x.strides[-1])
    )
    intermediate = View(context.temporary(16 * prod(shape)), 0, shape,
                   packed(TensorType(shape, "c128")), "c128")  # fmt: skip
    # For a half spectrum the first transform has one more point than the others.
    kept = result.shape[-1] // first
    steps = (*result.strides[:-1], result.strides[-1], first * result.strides[-1])
    target = result._replace(shape=(*batch, first, kept), strides=steps)
    last = len(batch) + 1
    scale = 1 / length if inverse else 1.0
    phases = [
        along(given, intermediate, last - 1, first, inverse, 1.0, context),
        along(intermediate, target, last, second, inverse, scale, context, first),
    ]
    if kind == "rfft":
        one = intermediate._replace(shape=(*batch, 1, second))
        target = result._replace(shape=(*batch, 1, kept + 1), strides=steps)
        phases.append(along(one, target, last, second, inverse, scale, context))
    return phases


def along(
    x: View,
    result: View,
    dim: int,
    length: int,
    inverse: bool,
    scale: float,
    context: Context,
    turned: int = 0,
    halved: bool = False,
) -> Phase:
    """Return the phase that transforms all rows along one dimension.

    `result` may be `x`, and may have the first points only. With `turned`, the rows are that many
    parts of longer rows, along the dimension before. With `halved`, they are pairs of real
    elements, of which half a spectrum is computed.
    """
    views = [_without(x, dim), _without(result, dim)]
    if turned:
        numbers = (0,) * (len(views[0].shape) - 1) + (1,)
        views.append(View(0, 0, views[0].shape, numbers, "i64"))
    found = nest(views, counters=int(bool(turned)))
    # Rows that are contiguous in memory need no transpose.
    longest_loop = max(
        found.loops,
        key=lambda loop: (
            loop.strides[-1] == (1 if turned else result.itemsize) and loop.extent >= lanes(),
            loop.extent,
        ),
        default=None,
    )
    grid = grid_of(views[:2], found, None, longest_loop, 1, lanes())
    layouts = [
        lying(view.itemsize, longest_loop.strides[i] if longest_loop else 0, view.strides[dim])
        for i, view in enumerate((x, result))
    ]
    size = inner(length)
    divisors, chirped = radices(size) or (), size != length
    radix_kinds = kinds(divisors)
    name = "_".join(["fft", x.dtype, layouts[0], result.dtype, layouts[1], *map(str, radix_kinds)])
    name += "_chirped" * chirped + ("_turned" if turned else "_halved" if halved else "")
    within = middle(length)
    ends = (x.dtype, layouts[0]), (result.dtype, layouts[1])
    body = partial(_transformed, radix_kinds, *ends, bool(turned), halved, chirped)
    kernel = grid_kernel(name, Form(2, int(bool(turned)), extras=13), body)
    (scaled,) = struct.unpack("q", struct.pack("d", scale))
    extra = (length, x.shape[dim], result.shape[dim], x.strides[dim], result.strides[dim],
             max(size, length + halved) * width(), int(inverse), scaled, turned, within, size,
             len(divisors))  # fmt: skip
    work = grid.blocks * cost(length)
    tail = [*divisors, *circle(size).view(np.int64).tolist()]
    if chirped:
        tail += chirp(length).view(np.int64).tolist()
    if turned:
        tail += between(turned, length).ravel().view(np.int64).tolist()
    if halved:
        tail += circle(2 * length)[: length // 2 + 1].view(np.int64).tolist()
    # The table follows the record, whose length does not depend on its contents.
    at = len(grid.phase(kernel, work, context.workers, "fft", (*extra, 0)).record)
    phase = grid.phase(kernel, work, context.workers, "fft", (*extra, at))
    return phase._replace(record=(*phase.record, *tail))


def _without(view: View, dim: int) -> View:
    """Return the view of the first points of the rows along a dimension."""
    shape, strides = (each[:dim] + each[dim + 1 :] for each in (view.shape, view.strides))
    return view._replace(shape=shape, strides=strides)


def _transformed(
    known: Sequence[int],
    source: tuple[str, str],
    target: tuple[str, str],
    turned: bool,
    halved: bool,
    chirped: bool,
    f: Function,
    block: Block,
) -> None:
    """Emit the transform of a block of rows for given layouts of source and target."""
    emit_passes(f.module, known)
    words = map(block.extra, range(13))
    length, points, kept, step, step_made, plane, flip, scale, parts, within, size, count, at = (
        words
    )
    record = f.params[1]
    divisors = f.offset(record, at, "i64")
    table = f.offset(divisors, count, "i64")
    beyond = f.offset(table, size * 2, "i64")
    other = f.offset(block.scratch, plane * 2)

    def planes(start: Value) -> list[Value]:
        # An inverse transform is a transform with real and imaginary parts swapped.
        return [f.offset(start, plane * flip), f.offset(start, plane - plane * flip)]

    rows = Rows(f, *source, block.addresses[0], block.column_strides[0], step,
                block.columns, planes(block.scratch))  # fmt: skip
    if halved and source[0] not in COMPLEX:
        for start, plane_of in zip(
            (rows.address, f.offset(rows.address, step / 2)), rows.planes, strict=True
        ):
            replace(rows, address=start, planes=[plane_of]).bring(points)
    else:
        rows.bring(points)
    if source[0] in COMPLEX and target[0] not in COMPLEX:
        _mirror(rows, points, length)
    if turned:
        start = f.offset(beyond, block.addresses[2], "i64")
        _turn(rows, length, parts, within, start, [block.scratch, f.offset(block.scratch, plane)])
    table_args = [divisors, count, table]
    if chirped:
        emit_chirped(f.module)
        result = f.call(
            "chirped", [block.scratch, other, plane, length, size, *table_args, beyond], "ptr"
        )
        beyond = f.offset(beyond, (length + size) * 2, "i64")
    else:
        result = f.call("passes", [block.scratch, other, length, plane, *table_args], "ptr")
    if halved:
        _untangle(replace(rows, planes=planes(result)), length, beyond)
    Rows(f, *target, block.addresses[1], block.column_strides[1], step_made,
         block.columns, planes(result)).put(kept, scale.to("double", "bitcast"))  # fmt: skip


def _mirror(rows: Rows, points: Value, length: Value) -> None:
    """Emit the second half of the spectrum of real elements, whose end points are real."""
    f = rows.f
    zero = f.value(0.0, rows.vector)
    rows.store(1, f.value(0, "i64"), zero)
    with f.when((points + points).is_("eq", length + 2)):
        rows.store(1, points - 1, zero)
    with f.loop(points, length) as k:
        rows.store(0, k, rows.load(0, length - k))
        rows.store(1, k, -rows.load(1, length - k))


def _turn(
    rows: Rows, length: Value, count: Value, within: Value, table: Value, planes: Sequence[Value]
) -> None:
    """Multiply the rows by twiddle factors, which are products of two lines of the table."""
    f = rows.f

    def line(number: Value) -> tuple[Value, Value]:
        at = f.offset(table, number * count * 2, "i64")
        return f.load(at, rows.vector, 8), f.load(f.offset(at, count, "i64"), rows.vector, 8)

    with f.loop(0, length // within) as i:
        coarse = line(i + within)
        with f.loop(0, within) as j:
            at = [f.offset(plane, (i * within + j) * rows.width) for plane in planes]
            real, imag = (f.load(each, rows.vector, rows.width) for each in at)
            for part, each in zip(
                product(f, (real, imag), product(f, coarse, line(j))), at, strict=True
            ):
                f.store(part, each, rows.width)


def _untangle(rows: Rows, length: Value, table: Value) -> None:
    """Emit half the spectrum of real elements from the transform of their pairs.

    With a and b at points k and n - k, the even elements have the spectrum (a + conj b) / 2, and
    the odd ones (a - conj b) / 2i.
    """
    f = rows.f
    zero, half = f.value(0.0, rows.vector), f.value(0.5, rows.vector)
    real, imag = (rows.load(plane, f.value(0, "i64")) for plane in (0, 1))
    for point, value in ((f.value(0, "i64"), real + imag), (length, real - imag)):
        rows.store(0, point, value)
        rows.store(1, point, zero)
    with f.loop(1, length // 2 + 1) as k:
        a, b = ([rows.load(plane, at) * half for plane in (0, 1)] for at in (k, length - k))
        even, odd = (a[0] + b[0], a[1] - b[1]), (a[1] + b[1], b[0] - a[0])
        at = f.offset(table, k * 2, "double")
        turn = [f.splat(f.load(each, "double"), rows.lanes) for each in (at, f.offset(at, 8))]
        real, imag = product(f, odd, (turn[0], turn[1]))
        for point, values in (
            (k, (even[0] + real, even[1] + imag)),
            (length - k, (even[0] - real, imag - even[1])),
        ):
            for plane, value in enumerate(values):
                rows.store(plane, point, value)


RULES: dict[str, Rule] = {"fft": fft_rule}
