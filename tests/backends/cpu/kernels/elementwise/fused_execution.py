"""Programs run operation by operation, fused ones by their kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.target import MachineDescription
from shardir.backends.cpu.kernels.elementwise.rules import lower_loop_nest
from shardir.interpret.interpreter import apply_op
from shardir.ir.module import Module, Value
from shardir.ir.types import NUMPY_DTYPES
from shardir.ops.control_flow.fused import fused
from tests.backends.cpu.phase_runner import lower_and_run

Array = npt.NDArray[Any]
Lay = Callable[[Array], Array]
"""An array with the same elements that lies in some other way."""


def dense(array: Array) -> Array:
    return array


def flipped(array: Array) -> Array:
    """The dimensions lie in memory the other way around."""
    return np.array(array.T, order="C").T


def apart(array: Array) -> Array:
    """Every element is some way from the next."""
    wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
    every: tuple[Any, ...] = tuple(slice(1, 2 * n + 1, 2) for n in array.shape)
    part: Array = wide[(..., *every)]
    part[...] = array
    return part


def from_line(array: Array, skip: int) -> Array:
    """The same elements, `skip` of them behind where a line of memory begins."""
    whole = np.zeros(array.nbytes + 128 + skip * array.itemsize, np.uint8)
    start = -whole.ctypes.data % 64 + skip * array.itemsize
    made: Array = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def computed(
    module: Module,
    args: Sequence[Array],
    lay: Lay = dense,
    workers: int = 2,
    machine: MachineDescription | None = None,
) -> list[Any]:
    """The results of a program; raises `AssertionError` for a group without kernel."""
    env: dict[Value, Array] = {
        param: lay(np.asarray(arg))
        for param, arg in zip(module.main.body.params, args, strict=True)
    }
    for op in module.main.body.ops:
        arrays = [env[v] for v in op.operands]
        if op.spec is not fused:
            made = apply_op(op, arrays)
            outs = list(made) if isinstance(made, tuple) else [made]
        else:
            outs = [lay(np.zeros(v.type.shape, NUMPY_DTYPES[v.type.dtype])) for v in op.results]
            assert lower_and_run(lower_loop_nest, op, arrays, outs, workers, machine) is not None, (
                op.why
            )
        env.update(zip(op.results, map(np.asarray, outs), strict=True))
    return [env[v] for v in module.main.body.returns]
