"""Launches of programs whose results are views of arguments: reshapes and contiguous slices.

The results are views of the memory of an argument, and no code runs. A view keeps all of that
memory alive, so a small part of a large argument is copied instead.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shardir import ops
from shardir._imports.lazy_import import lazy_import
from shardir.backends.base import Launch
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.signature import ArraySignature
from shardir.frontend.shardings.sharding import Sharding
from shardir.ir.module import Function, Op, Value
from shardir.passes.rewriting import has_nested_effect

if TYPE_CHECKING:
    from shardir.backends.cpu.dispatch import launch
else:
    launch = lazy_import("shardir.backends.cpu.dispatch.launch")

MAX_RETAINED_BYTES = 1 << 12
"""Maximum size in bytes of an argument that any view may keep alive."""
MAX_RETAINED_RATIO = 8
"""Maximum ratio of the retained bytes to the bytes of the views."""


class ContiguousView(NamedTuple):
    """Contiguous elements of a parameter, from the element `begin`."""

    param: int
    begin: int
    shape: tuple[int, ...]
    is_part: bool


def view_launch(
    function: Function, made: Sequence[tuple[ArraySignature, Sharding]]
) -> Launch | None:
    """Return a launch that makes the results of a function as views, or `None` if operations run.

    `made` are the signatures and shardings of the results. The launch returns `None` for arguments
    that are no arrays in one local allocation.
    """
    body = function.body
    if any(has_nested_effect(op) for op in body.ops):
        return None
    makers = {value: op for op in body.ops for value in op.results}
    params = {value: number for number, value in enumerate(body.params)}
    windows: list[ContiguousView] = []
    for value in body.returns:
        window = _contiguous_view(value, params, makers)
        if window is None:
            return None
        windows.append(window)
    for number, value in enumerate(body.params):
        seen = sum(prod(each.shape) for each in windows if each.param == number)
        if (
            value.type.nbytes > MAX_RETAINED_BYTES
            and 0 < seen * MAX_RETAINED_RATIO < value.type.size
        ):
            return None
    types = [value.type for value in body.params]
    return launch.make_launch(
        program=None,
        kind=Array,
        template=(),
        arguments=[launch.LaunchArgument(-1, type.shape) for type in types],
        places=(),
        sizes=(),
        results=[
            launch.LaunchResult(
                -1 - window.param,
                window.begin * types[window.param].numpy.itemsize,
                window.shape,
                types[window.param].numpy,
                *each,
                part=window.is_part,
            )
            for window, each in zip(windows, made, strict=True)
        ],
        keep=None,
    )


def _contiguous_view(
    value: Value, params: Mapping[Value, int], makers: Mapping[Value, Op]
) -> ContiguousView | None:
    """Return the view of a parameter that a value is, or `None`."""
    shape, begin = value.type.shape, 0
    while value not in params:
        op = makers[value]
        if op.spec is ops.slice_:
            start = _contiguous_offset(op)
            if start is None:
                return None
            begin += start
        elif op.spec is not ops.reshape:
            return None
        (value,) = op.operands
    return ContiguousView(params[value], begin, shape, prod(shape) != value.type.size)


def _contiguous_offset(op: Op) -> int | None:
    """Return the flat offset of a slice in its operand, or `None` if its elements are not
    contiguous."""
    whole, kept = op.operands[0].type.shape, op.result.type.shape
    begin, step, together = 0, 1, True
    for size, extent, start, stride in zip(
        reversed(whole), reversed(kept), *map(reversed, (op.attrs["starts"], op.attrs["strides"])),
        strict=True,
    ):  # fmt: skip
        if extent > 1 and (stride != 1 or not together):
            return None
        together = together and extent == size
        begin += start * step
        step *= size
    return begin


def bytes_view_launch(given: bytes, made: Array) -> Launch | None:
    """Return a launch that makes an array like `made` from other bytes, or `None` if `made` is no
    view."""
    storage = made.total_storage
    begin = storage.address - np.frombuffer(given, np.uint8).__array_interface__["data"][0]
    if not 0 <= begin <= len(given) - made.type.nbytes:
        return None
    return launch.make_launch(
        program=None,
        kind=Array,
        template=(),
        arguments=[launch.LaunchArgument(-1)],
        places=(),
        sizes=(),
        results=[
            launch.LaunchResult(
                -1, begin, storage.shape, storage.dtype, made.signature, made.sharding, part=True
            )
        ],
        keep=None,
    )
