"""Transform the rows of a batch, one dimension after the other."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    BufferView,
    LoweringContext,
    Phase,
    Rule,
    row_major_strides,
)
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.fft.bluestein import (
    chirp_factors,
    define_bluestein,
    transform_length,
    transform_nanoseconds,
)
from shardir.backends.cpu.kernels.fft.passes import (
    complex_product,
    define_passes,
    factor_long_rows,
    factor_radices,
    fft_lanes,
    fft_vector_bytes,
    largest_divisor_below_root,
    pass_kinds,
    split_twiddle_table,
    unit_roots,
)
from shardir.backends.cpu.kernels.fft.row_transfer import RowBatch, memory_layout
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, COMPLEX_OF, TensorType

HALF_LANES_SHARE, MAX_SHORT_ROW_POINTS, MAX_CHEAP_ROW_NANOSECONDS = 2, 1 << 10, 24_000
"""If rows are longer, or take more nanoseconds, at least half of the lanes must be used: NumPy is
as fast otherwise."""


def fft_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower an FFT to one phase for each dimension, or return `None` if scratch memory is too
    small."""
    (x,), (result,) = operands, results
    kind, rank = str(op.attrs["kind"]), op.attrs["rank"]
    if result.size == 0:
        return []
    dims = list(range(len(x.shape) - rank, len(x.shape)))
    lengths = (result if kind == "irfft" else x).shape
    if rank == 1 and (
        _has_too_few_rows(result, dims[0], lengths[-1], context.machine)
        or not _fits_scratch(lengths[-1], context.machine)
    ):
        phases = lower_long_rows(kind, x, result, context)
        if phases is not None:
            return phases
    if not all(
        _fits_scratch(lengths[d], context.machine)
        and not _has_too_few_rows(result, d, lengths[d], context.machine, HALF_LANES_SHARE)
        for d in dims
    ):
        return None
    inverse = kind[0] == "i"
    if kind == "irfft" and rank > 1:
        type = TensorType(x.shape, x.dtype)
        temporary = BufferView(
            context.temporary(x.nbytes), 0, x.shape, row_major_strides(type), x.dtype
        )
    else:
        temporary = result
    # The last dimension converts between real and complex: first in `rfft`, last in `irfft`.
    steps = []
    for d in dims if kind == "irfft" else reversed(dims):
        target = result if d == dims[-1] else temporary
        scale = 1 / lengths[d] if inverse else 1.0
        if x.dtype in COMPLEX_OF and lengths[d] % 2 == 0:
            steps.append(
                lower_dimension(
                    _complex_pairs(x), target, d, lengths[d] // 2, False, 1.0, context, halved=True
                )
            )
        else:
            steps.append(lower_dimension(x, target, d, lengths[d], inverse, scale, context))
        x = target
    return steps


def _fits_scratch(length: int, machine: HostDescription) -> bool:
    """Return whether scratch memory holds rows of this length."""
    most = SCRATCH_BYTES_PER_WORKER // (4 * fft_vector_bytes(machine))
    return length <= most and transform_length(length) <= most


def _has_too_few_rows(
    result: BufferView, dim: int, length: int, machine: HostDescription, share: int = 1
) -> bool:
    """Return whether rows are long and too few for the lanes, or for `1/share` of them."""
    rows = prod(n for d, n in enumerate(result.shape) if d != dim)
    return share * rows < fft_lanes(machine) and (
        length > MAX_SHORT_ROW_POINTS or transform_nanoseconds(length) > MAX_CHEAP_ROW_NANOSECONDS
    )


def _complex_pairs(x: BufferView) -> BufferView:
    """View adjacent elements of the last dimension as complex; the even ones if they are not
    contiguous."""
    strides = (*x.strides[:-1], 2 * x.strides[-1])
    dtype = COMPLEX_OF[x.dtype] if x.strides[-1] == x.itemsize else x.dtype
    return x._replace(shape=(*x.shape[:-1], x.shape[-1] // 2), strides=strides, dtype=dtype)


def lower_long_rows(
    kind: str, x: BufferView, result: BufferView, context: LoweringContext
) -> list[Phase] | None:
    """Transform rows of n = a b points that are long or few: b transforms of a points, then a of b
    points.

    Between them, point q of the p-th row is multiplied by the twiddle factor of p q / n.
    """
    length = x.shape[-1]
    divided = factor_long_rows(length, fft_lanes(context.machine))
    if kind == "irfft" or divided is None:
        return None
    first, second = divided
    batch, inverse = x.shape[:-1], kind == "ifft"
    shape = (*batch, first, second)
    given = x._replace(
        shape=shape, strides=(*x.strides[:-1], second * x.strides[-1], x.strides[-1])
    )
    intermediate = BufferView(context.temporary(16 * prod(shape)), 0, shape,
                   row_major_strides(TensorType(shape, "c128")), "c128")  # fmt: skip
    # For a half spectrum the first transform has one more point than the others.
    kept = result.shape[-1] // first
    steps = (*result.strides[:-1], result.strides[-1], first * result.strides[-1])
    target = result._replace(shape=(*batch, first, kept), strides=steps)
    last = len(batch) + 1
    scale = 1 / length if inverse else 1.0
    phases = [
        lower_dimension(given, intermediate, last - 1, first, inverse, 1.0, context),
        lower_dimension(intermediate, target, last, second, inverse, scale, context, first),
    ]
    if kind == "rfft":
        one = intermediate._replace(shape=(*batch, 1, second))
        target = result._replace(shape=(*batch, 1, kept + 1), strides=steps)
        phases.append(lower_dimension(one, target, last, second, inverse, scale, context))
    return phases


def lower_dimension(
    x: BufferView,
    result: BufferView,
    dim: int,
    length: int,
    inverse: bool,
    scale: float,
    context: LoweringContext,
    turned: int = 0,
    halved: bool = False,
) -> Phase:
    """Return the phase that transforms all rows along one dimension.

    `result` may be `x`, and may have the first points only. With `turned`, the rows are that many
    parts of longer rows, along the dimension before. With `halved`, they are pairs of real
    elements, of which half a spectrum is computed.
    """
    views = [_drop_dim(x, dim), _drop_dim(result, dim)]
    if turned:
        numbers = (0,) * (len(views[0].shape) - 1) + (1,)
        views.append(BufferView(0, 0, views[0].shape, numbers, "i64"))
    found = loop_nest_of(views, counters=int(bool(turned)))
    lanes = fft_lanes(context.machine)
    # Rows that are contiguous in memory need no transpose.
    longest_loop = max(
        found.loops,
        key=lambda loop: (
            loop.strides[-1] == (1 if turned else result.itemsize) and loop.extent >= lanes,
            loop.extent,
        ),
        default=None,
    )
    grid = block_grid_of(views[:2], found, None, longest_loop, 1, lanes)
    layouts = [
        memory_layout(
            view.itemsize, longest_loop.strides[i] if longest_loop else 0, view.strides[dim]
        )
        for i, view in enumerate((x, result))
    ]
    size = transform_length(length)
    divisors, chirped = factor_radices(size) or (), size != length
    radix_kinds = pass_kinds(divisors)
    name = "_".join(["fft", x.dtype, layouts[0], result.dtype, layouts[1], *map(str, radix_kinds)])
    name += "_chirped" * chirped + ("_turned" if turned else "_halved" if halved else "")
    within = largest_divisor_below_root(length)
    ends = (x.dtype, layouts[0]), (result.dtype, layouts[1])
    body = partial(_emit_block, radix_kinds, *ends, bool(turned), halved, chirped)
    kernel = grid_kernel(name, KernelForm(2, int(bool(turned)), extras=13), body)
    (scaled,) = struct.unpack("q", struct.pack("d", scale))
    extra = (
        length,
        x.shape[dim],
        result.shape[dim],
        x.strides[dim],
        result.strides[dim],
        max(size, length + halved) * fft_vector_bytes(context.machine),
        int(inverse),
        scaled,
        turned,
        within,
        size,
        len(divisors),
    )
    work = grid.blocks * transform_nanoseconds(length)
    tail = [*divisors, *unit_roots(size).view(np.int64).tolist()]
    if chirped:
        tail += chirp_factors(length).view(np.int64).tolist()
    if turned:
        tail += split_twiddle_table(turned, length).ravel().view(np.int64).tolist()
    if halved:
        tail += unit_roots(2 * length)[: length // 2 + 1].view(np.int64).tolist()
    # The table follows the record, whose length does not depend on its contents.
    at = len(grid.phase(kernel, work, context.workers, "fft", (*extra, 0)).record)
    phase = grid.phase(kernel, work, context.workers, "fft", (*extra, at))
    return phase._replace(record=(*phase.record, *tail))


def _drop_dim(view: BufferView, dim: int) -> BufferView:
    """Return the view of the first points of the rows along a dimension."""
    shape, strides = (each[:dim] + each[dim + 1 :] for each in (view.shape, view.strides))
    return view._replace(shape=shape, strides=strides)


def _emit_block(
    known: Sequence[int],
    source: tuple[str, str],
    target: tuple[str, str],
    turned: bool,
    halved: bool,
    chirped: bool,
    f: LLVMFunction,
    block: GridBlock,
) -> None:
    """Emit the transform of a block of rows for given layouts of source and target."""
    define_passes(f.module, known)
    words = map(block.extra, range(13))
    length, points, kept, step, step_made, plane, flip, scale, parts, within, size, count, at = (
        words
    )
    record = f.params[1]
    divisors = f.offset(record, at, "i64")
    table = f.offset(divisors, count, "i64")
    beyond = f.offset(table, size * 2, "i64")
    other = f.offset(block.scratch, plane * 2)

    def planes(start: LLVMValue) -> list[LLVMValue]:
        # An inverse transform is a transform with real and imaginary parts swapped.
        return [f.offset(start, plane * flip), f.offset(start, plane - plane * flip)]

    rows = RowBatch(f, *source, block.addresses[0], block.column_strides[0], step,
                block.columns, planes(block.scratch))  # fmt: skip
    if halved and source[0] not in COMPLEX:
        for start, plane_of in zip(
            (rows.address, f.offset(rows.address, step / 2)), rows.planes, strict=True
        ):
            replace(rows, address=start, planes=[plane_of]).load_rows(points)
    else:
        rows.load_rows(points)
    if source[0] in COMPLEX and target[0] not in COMPLEX:
        _emit_mirror_spectrum(rows, points, length)
    if turned:
        start = f.offset(beyond, block.addresses[2], "i64")
        _emit_twiddle(
            rows, length, parts, within, start, [block.scratch, f.offset(block.scratch, plane)]
        )
    table_args = [divisors, count, table]
    if chirped:
        define_bluestein(f.module)
        result = f.call(
            "chirped", [block.scratch, other, plane, length, size, *table_args, beyond], "ptr"
        )
        beyond = f.offset(beyond, (length + size) * 2, "i64")
    else:
        result = f.call("passes", [block.scratch, other, length, plane, *table_args], "ptr")
    if halved:
        _emit_split_pairs(replace(rows, planes=planes(result)), length, beyond)
    RowBatch(f, *target, block.addresses[1], block.column_strides[1], step_made,
         block.columns, planes(result)).store_rows(kept, scale.to("double", "bitcast"))  # fmt: skip


def _emit_mirror_spectrum(rows: RowBatch, points: LLVMValue, length: LLVMValue) -> None:
    """Emit the second half of the spectrum of real elements, whose end points are real."""
    f = rows.f
    zero = f.value(0.0, rows.vector)
    rows.store(1, f.value(0, "i64"), zero)
    with f.when((points + points).is_("eq", length + 2)):
        rows.store(1, points - 1, zero)
    with f.loop(points, length) as k:
        rows.store(0, k, rows.load(0, length - k))
        rows.store(1, k, -rows.load(1, length - k))


def _emit_twiddle(
    rows: RowBatch,
    length: LLVMValue,
    count: LLVMValue,
    within: LLVMValue,
    table: LLVMValue,
    planes: Sequence[LLVMValue],
) -> None:
    """Multiply the rows by twiddle factors, which are products of two lines of the table."""
    f = rows.f

    def line(number: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        at = f.offset(table, number * count * 2, "i64")
        return f.load(at, rows.vector, 8), f.load(f.offset(at, count, "i64"), rows.vector, 8)

    with f.loop(0, length // within) as i:
        coarse = line(i + within)
        with f.loop(0, within) as j:
            at = [f.offset(plane, (i * within + j) * rows.width) for plane in planes]
            real, imag = (f.load(each, rows.vector, rows.width) for each in at)
            for part, each in zip(
                complex_product(f, (real, imag), complex_product(f, coarse, line(j))),
                at,
                strict=True,
            ):
                f.store(part, each, rows.width)


def _emit_split_pairs(rows: RowBatch, length: LLVMValue, table: LLVMValue) -> None:
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
        real, imag = complex_product(f, odd, (turn[0], turn[1]))
        for point, values in (
            (k, (even[0] + real, even[1] + imag)),
            (length - k, (even[0] - real, imag - even[1])),
        ):
            for plane, value in enumerate(values):
                rows.store(plane, point, value)


RULES: dict[str, Rule] = {"fft": fft_rule}
