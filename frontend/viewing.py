"""Programs that only look at their arguments in another way: reshapes, and parts in one piece.

What they make are windows into the memory of an argument, and nothing runs. A part keeps all of
that memory, so it is a copy where it is a small part of something large.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.base import Launch
from shardir.frontend.array import Array
from shardir.frontend.shardings import Sharding
from shardir.frontend.signature import Signature
from shardir.ir import Function, Op, Value

SMALL_BYTES = 1 << 12
"""What is no larger may be kept for the sake of any part of it."""
SHARE = 8
"""A window keeps at most so many times the bytes that are seen of it."""


class Window(NamedTuple):
    """Elements of a parameter that lie together, from one of them on."""

    param: int
    begin: int
    shape: tuple[int, ...]
    part: bool


def launcher(function: Function, made: Sequence[tuple[Signature, Sharding]]) -> Launch | None:
    """What makes the results of a function from its arguments' memory; `None`: more is to be done.

    `made` are the results' signatures and shardings. The launch returns `None` for arguments that
    are no arrays in one piece here.
    """
    body = function.body
    makers = {value: op for op in body.ops for value in op.results}
    params = {value: number for number, value in enumerate(body.params)}
    windows: list[Window] = []
    for value in body.returns:
        window = _window(value, params, makers)
        if window is None:
            return None
        windows.append(window)
    if not windows:
        return None
    for number, value in enumerate(body.params):
        seen = sum(prod(each.shape) for each in windows if each.param == number)
        if value.type.nbytes > SMALL_BYTES and 0 < seen * SHARE < value.type.size:
            return None
    from shardir.backends.cpu.native.runtime import launching
    from shardir.backends.cpu.native.runtime.calls import launches

    types = [value.type for value in body.params]
    return launching.launcher(
        launches(),
        program=0,
        kind=Array,
        template=(),
        arguments=[launching.Argument(-1, type.shape) for type in types],
        places=(),
        sizes=(),
        results=[
            launching.Result(
                -1 - window.param,
                window.begin * types[window.param].numpy.itemsize,
                window.shape,
                types[window.param].numpy,
                *each,
                part=window.part,
            )
            for window, each in zip(windows, made, strict=True)
        ],
        keep=None,
    )


def _window(value: Value, params: Mapping[Value, int], makers: Mapping[Value, Op]) -> Window | None:
    """What of a parameter a value is."""
    shape, begin = value.type.shape, 0
    while value not in params:
        op = makers[value]
        if op.name == "slice":
            start = _begin(op)
            if start is None:
                return None
            begin += start
        elif op.name != "reshape":
            return None
        (value,) = op.operands
    return Window(params[value], begin, shape, prod(shape) != value.type.size)


def _begin(op: Op) -> int | None:
    """Where in the flat order of its operand a slice begins, if its elements lie together there."""
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


def launcher_of_bytes(given: bytes, made: Array) -> Launch | None:
    """What makes an array like this one of as many bytes; `None`: it lies elsewhere."""
    from shardir.backends.cpu.native.runtime import foreign, launching
    from shardir.backends.cpu.native.runtime.calls import launches

    storage = made.storage
    begin = storage.address - id(given) - foreign.OCTETS
    if not foreign.readable() or not 0 <= begin <= len(given) - made.type.nbytes:
        return None
    return launching.launcher(
        launches(),
        program=0,
        kind=Array,
        template=(),
        arguments=[launching.Argument(-1)],
        places=(),
        sizes=(),
        results=[
            launching.Result(
                -1, begin, storage.shape, storage.dtype, made.signature, made.sharding, part=True
            )
        ],
        keep=None,
    )
