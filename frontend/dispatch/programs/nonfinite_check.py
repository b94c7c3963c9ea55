"""The setting `debug_nans`: an error that names the operation from which NaN comes.

The results of each call are examined. If there is a NaN, the reference interpreter runs the traced
program on the same arguments until the first value that has one.
"""

from collections.abc import Sequence

import numpy as np

from shardir.errors import InterpretError
from shardir.frontend.arrays.array import Array
from shardir.frontend.errors import NanError
from shardir.frontend.source_locations import underline, with_location
from shardir.interpret.interpreter import Environment, run_block
from shardir.ir.dtypes import NumpyArray
from shardir.ir.module import Function, Op, Value
from shardir.ir.types import INEXACT

Elements = NumpyArray


class _FoundNan(Exception):
    """The first value with NaN."""

    def __init__(self, value: Value) -> None:
        self.value = value


class _WatchedValues(Environment):
    """The values of a run; setting one that has NaN raises `_FoundNan`."""

    def __setitem__(self, value: Value, array: Elements) -> None:
        if value.type.dtype in INEXACT and np.isnan(array).any():
            raise _FoundNan(value)
        super().__setitem__(value, array)


def read_arguments(leaves: Sequence[object], function: Function) -> list[Elements]:
    """Return copies of the arguments of a program, because it may reuse their memory."""
    return [
        np.array(leaf.read_total() if isinstance(leaf, Array) else leaf, param.type.numpy)
        for leaf, param in zip(leaves, function.body.params, strict=True)
    ]


def check_results(results: Sequence[Array], function: Function, arguments: list[Elements]) -> None:
    """Raise `NanError` if a result of the traced `function` has NaN."""
    for number, result in enumerate(results):
        if (
            result.type.dtype in INEXACT
            and result.is_fully_addressable
            and np.isnan(result.read_total()).any()
        ):
            which = f"result {number} of {function.name}" if len(results) > 1 else ""
            raise _nan_error(which or f"the result of {function.name}", function, arguments)


def _nan_error(which: str, function: Function, arguments: list[Elements]) -> NanError:
    params = function.body.params
    for param, array in zip(params, arguments, strict=True):
        if param.type.dtype in INEXACT and np.isnan(array).any():
            return NanError(
                with_location(f"{which} has NaN, and so has the argument %{param.name}")
            )
    values = _WatchedValues(zip(params, arguments, strict=True))
    try:
        for _ in run_block(function.body, values):
            break  # The devices of a mesh are needed, which traced programs do not contain.
    except _FoundNan as found:
        op = _definition(function, found.value)
        line = str(op).splitlines()[0].removesuffix(" {")
        text = f"{which} has NaN; the first operation that makes NaN is {line}"
        return NanError(text if op.loc is None else f"{text}\n{underline(op.loc)}")
    except InterpretError as error:
        return NanError(with_location(f"{which} has NaN; its origin is unknown: {error}"))
    return NanError(
        with_location(
            f"{which} has NaN, which the reference interpreter does not find; verify the passes "
            "with config(verify=True)"
        )
    )


def _definition(function: Function, value: Value) -> Op:
    """Return the operation that defines a value."""
    return next(op for op in function.body.walk() if value in op.results)
