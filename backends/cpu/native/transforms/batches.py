"""Transforms of the rows of a batch, a dimension after the other."""

import struct
from collections.abc import Sequence
from functools import partial

import numpy as np

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Phase, View, packed
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.backends.cpu.native.transforms.passes import emit_passes, lanes, radices, turns, width
from shardir.backends.cpu.native.transforms.rows import Rows, lying
from shardir.ir import Op
from shardir.types import COMPLEX, TensorType

FEW, SHORT = 4, 1 << 10
"""Of longer rows than these, a quarter of the lanes are to be filled: NumPy is as quick else."""


def fft_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Dimensions that scratch memory holds vectors of, one after the other."""
    (x,), (made,) = operands, results
    kind, rank = str(op.attrs["kind"]), op.attrs["rank"]
    if made.size == 0:
        return []
    dims = list(range(len(x.shape) - rank, len(x.shape)))
    lengths = (made if kind == "irfft" else x).shape
    if not all(_held(made, d, lengths[d]) for d in dims):
        return None
    inverse = kind[0] == "i"
    if kind == "irfft" and rank > 1:
        type = TensorType(x.shape, x.dtype)
        between = View(context.temporary(x.nbytes), 0, x.shape, packed(type), x.dtype)
    else:
        between = made
    # What is real is the last dimension's: first on the way there, last on the way back.
    steps = []
    for d in dims if kind == "irfft" else reversed(dims):
        target = made if d == dims[-1] else between
        steps.append(_along(x, target, d, lengths[d], inverse, context))
        x = target
    return steps


def _held(made: View, dim: int, length: int) -> bool:
    """Whether there is a kernel for rows of this length, and enough of them."""
    if radices(length) is None or 4 * length * width() > SCRATCH_BYTES:
        return False
    others = [n for d, n in enumerate(made.shape) if d != dim]
    return length <= SHORT or FEW * max(others, default=1) >= lanes()


def _along(x: View, made: View, dim: int, length: int, inverse: bool, context: Context) -> Phase:
    """All rows along one dimension; `made` may be `x`."""
    views = [_without(x, dim), _without(made, dim)]
    found = nest(views)
    # Rows that are neighbours need not be turned.
    many = max(
        found.loops,
        key=lambda loop: (loop.strides[1] == made.itemsize and loop.extent >= lanes(), loop.extent),
        default=None,
    )
    grid = grid_of(views, found, None, many, 1, lanes())
    ways = [
        lying(view.itemsize, many.strides[i] if many else 0, view.strides[dim])
        for i, view in enumerate((x, made))
    ]
    divisors = radices(length) or ()
    known = sorted({2, 4, *divisors})
    name = "_".join(["fft", x.dtype, ways[0], made.dtype, ways[1], *map(str, known)])
    body = partial(_transformed, known, (x.dtype, ways[0]), (made.dtype, ways[1]))
    kernel = grid_kernel(name, Form(2, extras=10), body)
    (scale,) = struct.unpack("q", struct.pack("d", 1 / length if inverse else 1.0))
    extra = (length, x.shape[dim], made.shape[dim], x.strides[dim], made.strides[dim],
             length * width(), int(inverse), scale, len(divisors))  # fmt: skip
    cost = grid.blocks * (30.0 + length * (8.0 + 3.0 * len(divisors)))
    tail = (*divisors, *turns(length).view(np.int64).tolist())
    # The table follows the record, whose length does not depend on what it says.
    at = len(grid.phase(kernel, cost, context.workers, "fft", (*extra, 0)).record)
    phase = grid.phase(kernel, cost, context.workers, "fft", (*extra, at))
    return phase._replace(record=phase.record + tail)


def _without(view: View, dim: int) -> View:
    """Where the rows along a dimension begin."""
    shape, strides = (each[:dim] + each[dim + 1 :] for each in (view.shape, view.strides))
    return view._replace(shape=shape, strides=strides)


def _transformed(
    known: Sequence[int],
    source: tuple[str, str],
    target: tuple[str, str],
    f: Function,
    block: Block,
) -> None:
    """A block of rows, from and to elements that lie in some way."""
    emit_passes(f.module, known)
    length, points, kept, step, step_made, plane, flip, scale, count, at = map(
        block.extra, range(10)
    )
    record = f.params[1]
    divisors = f.offset(record, at, "i64")
    table = f.offset(divisors, count, "i64")
    other = f.offset(block.scratch, plane * 2)

    def planes(start: Value) -> list[Value]:
        # An inverse transform is one of real and imaginary parts exchanged.
        return [f.offset(start, plane * flip), f.offset(start, plane - plane * flip)]

    rows = Rows(f, *source, block.addresses[0], block.column_strides[0], step,
                block.columns, planes(block.scratch))  # fmt: skip
    rows.bring(points)
    if source[0] in COMPLEX and target[0] not in COMPLEX:
        _mirror(rows, points, length)
    made = f.call("passes", [block.scratch, other, length, plane, divisors, count, table], "ptr")
    Rows(f, *target, block.addresses[1], block.column_strides[1], step_made,
         block.columns, planes(made)).put(kept, scale.to("double", "bitcast"))  # fmt: skip


def _mirror(rows: Rows, points: Value, length: Value) -> None:
    """The other half of the spectrum of real numbers, whose ends are real."""
    f = rows.f
    zero = f.value(0.0, rows.vector)
    rows.store(1, f.value(0, "i64"), zero)
    with f.when((points + points).is_("eq", length + 2)):
        rows.store(1, points - 1, zero)
    with f.loop(points, length) as k:
        rows.store(0, k, rows.load(0, length - k))
        rows.store(1, k, -rows.load(1, length - k))
