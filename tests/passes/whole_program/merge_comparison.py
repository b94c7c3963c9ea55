"""Comparison of per-device programs with their result of `merge-devices`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.frontend.numpy.dtypes import iinfo
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.ir.module import Function, GlobalTensor, Module
from shardir.ir.types import INTEGERS, TensorType, dtype_name
from shardir.passes import Pipeline
from shardir.verify.verifier import verify

Array = npt.NDArray[Any]


def stored_type(outer: GlobalTensor) -> TensorType:
    """Return the global type with the padding of the shards of all devices."""
    type, sharding = outer.type, outer.sharding
    local = sharding.local_shape(type.shape)
    pieces = [dim.num_shards for dim in sharding.dims]
    return type.with_shape([n * count for n, count in zip(local, pieces, strict=True)])


def merged(program: Module, pipeline: str = "merge-devices") -> Module:
    """Return one program for all devices, verified after each pass."""
    made = Pipeline.parse(pipeline)(program, lambda step, before, after, _: verify(after))
    assert made.main.spmd is None
    return made


def run_merged(program: Module, one: Module, arguments: Sequence[Array]) -> list[Array]:
    """Return the results of the merged program `one` for global arrays, padded as shards are."""
    spmd = program.main.spmd
    assert spmd is not None
    given = [
        pad_worst_case(x, stored_type(outer))
        for x, outer in zip(arguments, spmd.params, strict=True)
    ]
    made = run(one, given)
    return [
        x[tuple(map(slice, outer.type.shape))] for x, outer in zip(made, spmd.results, strict=True)
    ]


def merged_difference(program: Module, one: Module, arguments: Sequence[Array]) -> str:
    """Return how the results of a merged program differ, or an empty text."""
    want, got = run(program, arguments), run_merged(program, one, arguments)
    if are_close(want, got, tolerance_of(program)):
        return ""
    return f"the results are {got} instead of {want}"


def pad_worst_case(array: Array, to: TensorType) -> Array:
    """Return the array with worst-case padding."""
    worst: Any = np.nan
    if array.dtype.kind == "b":
        worst = True
    elif dtype_name(array.dtype) in INTEGERS:
        worst = iinfo(array.dtype).max
    made = np.full(to.shape, worst, array.dtype)
    made[tuple(map(slice, array.shape))] = array
    return made


def names(function: Function) -> list[str]:
    """Return the operations of a function's body, including nested blocks."""
    return [op.name for op in function.body.walk()]
