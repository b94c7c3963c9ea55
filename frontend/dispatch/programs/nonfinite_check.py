"""The settings `debug_nans` and `debug_infs`: an error that names the operation from which NaN or
an infinity comes.

The results of each call are examined. If one has such a number, the reference interpreter runs the
traced program on the same arguments until the first value that has one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardir.errors import InterpretError
from shardir.frontend.arrays.array import Array
from shardir.frontend.config import config
from shardir.frontend.errors import InfinityError, NanError
from shardir.frontend.source_locations import underline, with_location
from shardir.interpret.interpreter import Environment, run_block
from shardir.ir.dtypes import NumpyArray
from shardir.ir.module import Function, Op, Value
from shardir.ir.types import INEXACT

Elements = NumpyArray


@dataclass(frozen=True)
class NumberCheck:
    """A kind of numbers that results must not have."""

    name: str
    """The name of the numbers in errors."""
    find: Callable[[Elements], Elements]
    """Returns where an array has such numbers."""
    error: type[NanError | InfinityError]

    def has_numbers(self, dtype: str, elements: Elements) -> bool:
        """Return whether elements of type `dtype` have such numbers."""
        return dtype in INEXACT and bool(self.find(elements).any())


NAN_CHECK = NumberCheck("NaN", np.isnan, NanError)
INFINITY_CHECK = NumberCheck("an infinity", np.isinf, InfinityError)


def active_checks() -> tuple[NumberCheck, ...]:
    """Return the checks that the settings request."""
    requested = (config.debug_nans, NAN_CHECK), (config.debug_infs, INFINITY_CHECK)
    return tuple(check for is_requested, check in requested if is_requested)


class _FoundValue(Exception):
    """The first value with a number that results must not have."""

    def __init__(self, value: Value) -> None:
        self.value = value


def _watched_values(check: NumberCheck) -> type[Environment]:
    """Return the class of the values of a run; setting one that fails the check raises
    `_FoundValue`."""

    class WatchedValues(Environment):
        def __setitem__(self, value: Value, array: Elements) -> None:
            if check.has_numbers(value.type.dtype, array):
                raise _FoundValue(value)
            super().__setitem__(value, array)

    return WatchedValues


def read_arguments(leaves: Sequence[object], function: Function) -> list[Elements]:
    """Return copies of the arguments of a program, because it may reuse their memory."""
    return [
        np.array(leaf.read_total() if isinstance(leaf, Array) else leaf, param.type.numpy)
        for leaf, param in zip(leaves, function.body.params, strict=True)
    ]


def check_results(
    check: NumberCheck, results: Sequence[Array], function: Function, arguments: list[Elements]
) -> None:
    """Raise the error of `check` if a result of the traced `function` fails it."""
    for number, result in enumerate(results):
        if result.is_fully_addressable and check.has_numbers(
            result.type.dtype, result.read_total()
        ):
            which = f"result {number} of {function.name}" if len(results) > 1 else ""
            which = which or f"the result of {function.name}"
            raise check.error(_describe_origin(check, which, function, arguments))


def _describe_origin(
    check: NumberCheck, which: str, function: Function, arguments: list[Elements]
) -> str:
    """Return the message for the result `which`, with the location of the origin."""
    params, text = function.body.params, f"{which} has {check.name}"
    for param, array in zip(params, arguments, strict=True):
        if check.has_numbers(param.type.dtype, array):
            return with_location(f"{text}, and so has the argument %{param.name}")
    values = _watched_values(check)(zip(params, arguments, strict=True))
    try:
        for _ in run_block(function.body, values):
            break  # The devices of a mesh are needed, which traced programs do not contain.
    except _FoundValue as found:
        op = _definition(function, found.value)
        line = str(op).splitlines()[0].removesuffix(" {")
        text += f"; the first operation that makes {check.name} is {line}"
        return text if op.loc is None else f"{text}\n{underline(op.loc)}"
    except InterpretError as error:
        return with_location(f"{text}; its origin is unknown: {error}")
    return with_location(
        f"{text}, which the reference interpreter does not find; verify the passes with "
        "config(verify=True)"
    )


def _definition(function: Function, value: Value) -> Op:
    """Return the operation that defines a value."""
    return next(op for op in function.body.walk() if value in op.results)
