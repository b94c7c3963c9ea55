"""Decompositions by LAPACK, called from native code: a task processes some matrices one by one.

Each matrix is copied to columns of f64 or c128, as LAPACK requires, and the results are stored
once: the values equal NumPy's. Results that are not finite, or for which LAPACK fails, become NaN.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import prod
from typing import NamedTuple

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    TASKS_PER_WORKER,
    BufferView,
    LoweringContext,
    Phase,
)
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    batch_grid,
    grid_kernel,
)
from shardir.backends.cpu.kernels.linalg.lu import batch_view
from shardir.backends.numpy.lapack_routines import LAPACK_SYMBOL_PREFIX, find_routine
from shardir.ir.types import COMPLEX

WORKSPACE_ARGUMENTS = ("*work", "*rwork", "*iwork")
CALL_NANOSECONDS = 2000.0
"""The approximate overhead of a call."""


class LapackRoutine(NamedTuple):
    """A LAPACK routine and its arguments, each a word.

    `'V` is a letter, `*a` a piece of memory, and other words are integers by name; the integer
    `info` reports success. `lwork` and the like are workspace sizes, which the routine itself
    reports.
    """

    name: str
    arguments: str

    @property
    def words(self) -> list[str]:
        return self.arguments.split()


@cache
def query_workspace(
    called: LapackRoutine, sizes: tuple[tuple[str, int], ...]
) -> dict[str, int] | None:
    """Query the routine for `lwork`, `lrwork` and `liwork`; 0 for sizes that it does not report.

    Returns `None` if LAPACK has no such routine.
    """
    found = find_routine(called.name)
    if found is None:
        return None
    known, workspace_words = (
        dict(sizes),
        [word for word in called.words if word in WORKSPACE_ARGUMENTS],
    )
    if "lwork" not in called.words:
        return {}
    memory = {word: np.zeros(16, np.int64) for word in called.words if word[0] == "*"}
    memory["*iwork"] = np.zeros(16, found.integer)
    numbers = {word: np.array(known.get(word, -1), found.integer) for word in called.words}
    pointers = [
        ctypes.c_char_p(word[1:].encode())
        if word[0] == "'"
        else (memory if word[0] == "*" else numbers)[word].ctypes.data_as(ctypes.c_void_p)
        for word in called.words
    ]
    letters = sum(word[0] == "'" for word in called.words)
    found.call(*pointers, *[ctypes.c_size_t(1)] * letters)
    reported = [
        memory[word] if word == "*iwork" else memory[word].view(np.float64)
        for word in workspace_words
    ]
    return {
        f"l{word[1:]}": int(numbers[0])
        for word, numbers in zip(workspace_words, reported, strict=True)
    }


class MatrixEmitter(NamedTuple):
    """The parameters of the code that processes one matrix."""

    f: LLVMFunction
    dtype: str
    addresses: Sequence[LLVMValue]
    """The addresses of matrices and vectors, in the order of the views."""
    sizes: Mapping[str, LLVMValue]
    """Integers by name: arguments, and offsets of pieces of memory."""
    memory: LLVMValue

    @property
    def item(self) -> int:
        """Bytes of an element during computation."""
        return 16 if self.dtype in COMPLEX else 8

    def piece_address(self, name: str) -> LLVMValue:
        """Return the address of a piece of memory."""
        return self.f.offset(self.memory, self.sizes[name])

    def call(self, called: LapackRoutine) -> LLVMValue:
        """Call a routine; return whether it succeeded."""
        f, found = self.f, find_routine(called.name)
        assert found is not None
        kind = "i64" if found.integer is np.int64 else "i32"
        info = f.variable(kind, 0)
        pointers = []
        for word in called.words:
            if word[0] == "'":
                pointers.append(f.variable("i8", ord(word[1])).address)
            elif word[0] == "*":
                pointers.append(self.piece_address(word))
            elif word == "info":
                pointers.append(info.address)
            else:
                number = self.sizes[word]
                number = number if kind == "i64" else number.to(kind, "trunc")
                pointers.append(f.variable(kind, number).address)
        letters = [f.value(1, "i64")] * sum(word[0] == "'" for word in called.words)
        arguments = [*pointers, *letters]
        symbol = LAPACK_SYMBOL_PREFIX + called.name
        f.module.declare(symbol, "void", [each.type for each in arguments])
        f.call(symbol, arguments)
        return info.get().is_("eq", 0)


def emit_call_if_finite(e: MatrixEmitter, finite: LLVMValue, called: LapackRoutine) -> LLVMValue:
    """Call a routine if its matrix is finite, or it might not terminate; return whether it
    succeeded."""
    good = e.f.variable("i1", 0)
    with e.f.when(finite):
        good.set(e.call(called))
    return good.get()


EmitMatrix = Callable[[MatrixEmitter], None]


class BatchedWork(NamedTuple):
    """The processing of each matrix of a batch."""

    name: str
    dtype: str
    views: Sequence[tuple[BufferView, int]]
    """The views, each with the rank of its matrices or vectors."""
    routines: Sequence[LapackRoutine]
    sizes: Mapping[str, int]
    pieces: Mapping[str, int]
    """Bytes of memory by name, without the workspace that routines report."""
    cost: float
    emit: EmitMatrix


def lower_batch(work: BatchedWork, context: LoweringContext) -> list[Phase] | None:
    """Return a phase for all matrices; `None` if LAPACK lacks a routine."""
    sizes, pieces = dict(work.sizes), dict(work.pieces)
    wide = 16 if work.dtype in COMPLEX else 8
    for called in work.routines:
        workspace = query_workspace(called, tuple(work.sizes.items()))
        if workspace is None:
            return None
        for word, count in workspace.items():
            sizes[word] = max(count, sizes.get(word, 1))
            nbytes = sizes[word] * (wide if word == "lwork" else 8)
            pieces[f"*{word[1:]}"] = max(nbytes, pieces.get(f"*{word[1:]}", 0))
    total_bytes = 0
    for name, nbytes in pieces.items():
        sizes[name] = total_bytes
        total_bytes += -(-nbytes // 64) * 64
    steps = [step for view, dims in work.views for step in view.strides[len(view.shape) - dims :]]
    views = [batch_view(view, dims) for view, dims in work.views]
    count, shape, fits = (
        prod(views[0].shape),
        views[0].shape,
        total_bytes <= SCRATCH_BYTES_PER_WORKER,
    )
    workers = context.workers if fits else max(1, context.workers // 4)
    if not fits:
        slot = context.temporary(total_bytes * max(1, min(count, TASKS_PER_WORKER * workers)))
        views.insert(0, BufferView(slot, 0, shape, (0,) * len(shape), "f64"))
    grid = batch_grid(views, workers)
    extra = (total_bytes, *steps, *sizes.values())
    body = partial(_emit_batch, work.dtype, fits, len(steps), tuple(sizes), work.emit)
    integers = {
        str(np.dtype(known.integer)) for r in work.routines if (known := find_routine(r.name))
    }
    name = "_".join((work.name, work.dtype, *sorted(integers), "near" if fits else "far"))
    imports = tuple(LAPACK_SYMBOL_PREFIX + called.name for called in work.routines)
    kernel = grid_kernel(name, KernelForm(len(views), extras=len(extra)), body)._replace(
        imports=imports
    )
    return [grid.phase(kernel, count * (CALL_NANOSECONDS + work.cost), workers, work.name, extra)]


def _emit_batch(
    dtype: str,
    fits: bool,
    steps: int,
    names: Sequence[str],
    emit: EmitMatrix,
    f: LLVMFunction,
    block: GridBlock,
) -> None:
    memory = block.scratch
    if not fits:
        memory = f.offset(block.addresses[0], block.task * block.extra(0))
    sizes = {name: block.extra(1 + steps + i) for i, name in enumerate(names)}
    sizes |= {f"step{i}": block.extra(1 + i) for i in range(steps)}
    own = slice(None if fits else 1, None)
    starts = list(zip(block.addresses[own], block.column_strides[own], strict=True))
    with f.loop(0, block.columns) as which:
        places = [f.offset(address, which * stride) for address, stride in starts]
        emit(MatrixEmitter(f, dtype, places, sizes, memory))
