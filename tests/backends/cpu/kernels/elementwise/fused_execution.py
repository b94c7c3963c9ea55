"""Run programs operation by operation, with kernels for fused groups."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.elementwise.rules import lower_loop_nest
from shardir.interpret.interpreter import apply_op
from shardir.ir.module import Module, Value
from shardir.ir.types import NUMPY_DTYPES
from shardir.ops.control_flow.fused import fused
from tests.backends.cpu.phase_runner import lower_and_run

Array = npt.NDArray[Any]
LayoutFunction = Callable[[Array], Array]
"""A function that returns an array with equal elements in another layout."""


def dense(array: Array) -> Array:
    return array


def reversed_dims(array: Array) -> Array:
    """Return an array whose dimensions are in reverse memory order."""
    return np.array(array.T, order="C").T


def strided(array: Array) -> Array:
    """Return an array with gaps between all elements."""
    spacious = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
    spaced_indices: tuple[Any, ...] = tuple(slice(1, 2 * n + 1, 2) for n in array.shape)
    part: Array = spacious[(..., *spaced_indices)]
    part[...] = array
    return part


def offset_from_cache_line(array: Array, skip: int) -> Array:
    """Return a copy that starts `skip` elements after the start of a cache line."""
    whole = np.zeros(array.nbytes + 128 + skip * array.itemsize, np.uint8)
    start = -whole.ctypes.data % 64 + skip * array.itemsize
    made: Array = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def run_with_kernels(
    module: Module,
    args: Sequence[Array],
    layout: LayoutFunction = dense,
    workers: int = 2,
    machine: HostDescription | None = None,
) -> list[Any]:
    """Return the results of a program; raise `AssertionError` for a group without a kernel."""
    env: dict[Value, Array] = {
        param: layout(np.asarray(arg))
        for param, arg in zip(module.main.body.params, args, strict=True)
    }
    for op in module.main.body.ops:
        arrays = [env[v] for v in op.operands]
        if op.spec is not fused:
            made = apply_op(op, arrays)
            outs = list(made) if isinstance(made, tuple) else [made]
        else:
            outs = [layout(np.zeros(v.type.shape, NUMPY_DTYPES[v.type.dtype])) for v in op.results]
            assert lower_and_run(lower_loop_nest, op, arrays, outs, workers, machine) is not None, (
                op.why
            )
        env.update(zip(op.results, map(np.asarray, outs), strict=True))
    return [env[v] for v in module.main.body.returns]
