"""Comparison of per-device programs with their result of `merge-devices`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.interpret.interpreter import run
from shardir.ir.module import Function, GlobalTensor, Module
from shardir.ir.types import TensorType
from shardir.passes import Pipeline
from shardir.verify.verifier import verify

Array = npt.NDArray[Any]


def stored_type(outer: GlobalTensor) -> TensorType:
    """The whole array as long as all devices' pieces of it: padded where it is cut unevenly."""
    type, sharding = outer.type, outer.sharding
    local = sharding.local_shape(type.shape)
    pieces = [dim.num_shards for dim in sharding.dims]
    return type.with_shape([n * count for n, count in zip(local, pieces, strict=True)])


def merged(program: Module, pipeline: str = "merge-devices") -> Module:
    """One program for all devices, valid after each pass."""
    made = Pipeline.parse(pipeline)(program, lambda step, before, after, _: verify(after))
    assert made.main.spmd is None
    return made


def run_merged(program: Module, one: Module, arguments: Sequence[Array]) -> list[Array]:
    """The results of the merged program `one` for whole arrays, padded as devices pad them."""
    spmd = program.main.spmd
    assert spmd is not None
    given = [padded(x, stored_type(outer)) for x, outer in zip(arguments, spmd.params, strict=True)]
    made = run(one, given)
    return [
        x[tuple(map(slice, outer.type.shape))] for x, outer in zip(made, spmd.results, strict=True)
    ]


def padded(array: Array, to: TensorType) -> Array:
    """The array with the least welcome numbers behind its end."""
    worst: Any = np.nan
    if array.dtype.kind in "iu":
        worst = np.iinfo(array.dtype).max
    made = np.full(to.shape, True if array.dtype.kind == "b" else worst, array.dtype)
    made[tuple(map(slice, array.shape))] = array
    return made


def names(function: Function) -> list[str]:
    """The operations of a function's body, blocks inside included."""
    return [op.name for op in function.body.walk()]
