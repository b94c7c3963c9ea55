"""`shardir.experimental.checkify`: checks of running programs, whose failures are values."""

from collections.abc import Mapping, Sequence
from functools import wraps

import numpy as np

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function, with_method_errors
from shardir.frontend.dispatch.debugging import check_format_fits
from shardir.frontend.dispatch.execution_context import check_indices
from shardir.frontend.dispatch.temporary_programs import run_temporary
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_function
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import Parameters, leaf_labels
from shardir.frontend.tracing.trace import append_block, current_trace, emit_results, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.check import Check, JaxRuntimeError
from shardir.ir.host_function import HostFunction
from shardir.passes.simplify.functionalize_checks import (
    AUTOMATIC_CHECKS,
    UnsupportedCheckError,
    functionalize_checks,
)

ErrorCategory = str
"""The name of a kind of checks."""

user_checks = frozenset({"user"})
"""The checks that `check` states."""
nan_checks = frozenset({"nan"})
"""Checks that no operation returns NaN."""
div_checks = frozenset({"div"})
"""Checks that no divisor is zero."""
index_checks = frozenset({"index"})
"""Checks that indices are within their arrays, also those that a mode clamps or drops."""
float_checks = nan_checks | div_checks
"""Checks of floating-point operations."""
automatic_checks = float_checks | index_checks
"""All checks that need no `check`."""
all_checks = automatic_checks | user_checks
"""All checks."""


@with_method_errors
class Error:
    """The result of the checks of a function: which failed first, with the values of its message.

    It is a pytree. Under `vmap` it has the result of each example.
    """

    def __init__(
        self,
        code: object,
        values: Sequence[object] = (),
        checks: tuple[Check, ...] = (),
        counts: tuple[int, ...] = (),
    ) -> None:
        self._code, self._values = code, tuple(values)
        self._checks, self._counts = checks, counts

    def get(self) -> str | None:
        """Return the message of the first failed check, or None; of a batch, one line for each."""
        codes = np.asarray(self._code)
        if not codes.ndim:
            return self._message(())
        lines = [(index, self._message(index)) for index in np.ndindex(codes.shape)]
        found = [
            f"at mapped index {', '.join(map(str, index))}: {message}"
            for index, message in lines
            if message is not None
        ]
        return "\n".join(found) or None

    def throw(self) -> None:
        """Raise `JaxRuntimeError` with the message if a check failed."""
        message = self.get()
        if message is not None:
            raise JaxRuntimeError(message)

    def _message(self, index: tuple[int, ...]) -> str | None:
        number = int(np.asarray(self._code)[index])
        if not number:
            return None
        start = sum(self._counts[: number - 1])
        chosen = self._values[start : start + self._counts[number - 1]]
        return self._checks[number - 1].format_message(*(np.asarray(x)[index] for x in chosen))

    def __repr__(self) -> str:
        if isinstance(self._code, Tracer):
            return "Error(traced)"
        return f"Error({self.get() or 'none'})"


tree.register_node(
    Error,
    lambda error: ((error._code, error._values), (error._checks, error._counts)),
    lambda checks, children: Error(children[0], children[1], *checks),
)

init_error = Error(np.zeros((), np.int32))
"""The error of a function without failed checks."""


@traceback_boundary
def check(pred: object, msg: str, *fmt_args: object, **fmt_kwargs: object) -> None:
    """Check that `pred` is true when the program executes this call.

    The message is `msg.format(*fmt_args, **fmt_kwargs)` with arrays. `checkify` makes a failed
    check a value; otherwise the program raises `JaxRuntimeError`. Raise `ShapeError` unless `pred`
    is one bool, and `ArgumentError` for a message that is not text, shows other objects than
    arrays, or refers to an absent argument.
    """
    _emit_check(
        pred,
        _make_check("check", msg, fmt_args, fmt_kwargs, False),
        (*fmt_args, *fmt_kwargs.values()),
    )


def _make_check(
    name: str, msg: object, args: Sequence[object], options: Mapping[str, object], is_debug: bool
) -> Check:
    if not isinstance(msg, str):
        raise ArgumentError(with_location(f"the message of {name} is text, got {brief(msg)}"))
    for given in (*args, *options.values()):
        if not is_array_like(given):
            raise ArgumentError(
                with_location(f"the message of {name} shows arrays, got {brief(given)}")
            )
    check_format_fits(name, msg, args, options)
    return Check(f"{msg} (`check` failed)", tuple(options), is_debug)


def _emit_check(pred: object, made: Check, values: Sequence[object]) -> None:
    """Emit a check, or outside of a trace raise its error."""
    found = abstract_of(pred, "the condition of check").type
    if found.dtype != "bool" or found.rank:
        raise ShapeError(with_location(f"the condition of check is one bool, got {found}"))
    if current_trace() is None:
        made(np.asarray(pred), *map(np.asarray, values))
        return
    tracers = [as_tracer(x) for x in (pred, *values)]
    emit_results("callback", *tracers, function=HostFunction("check", made), result=())


@with_argument_errors
def debug_check(pred: object, msg: str, *fmt_args: object, **fmt_kwargs: object) -> None:
    """Check as `check` does, but only inside of `checkify`: elsewhere it has no effect."""
    _emit_check(
        pred,
        _make_check("debug_check", msg, fmt_args, fmt_kwargs, True),
        (*fmt_args, *fmt_kwargs.values()),
    )


@with_argument_errors
def check_error(error: Error) -> None:
    """Check that `error` has no failed check: raise it, or make it one of the enclosing program."""
    if not isinstance(error, Error):
        raise ArgumentError(with_location(f"check_error takes an Error, got {brief(error)}"))
    if not isinstance(error._code, Tracer):
        error.throw()
        return
    start = 0
    for number, (each, count) in enumerate(zip(error._checks, error._counts, strict=True), 1):
        values = error._values[start : start + count]
        start += count
        _emit_check(error._code != number, each, values)


@traceback_boundary
def checkify(f: UserFunction, errors: frozenset[ErrorCategory] = user_checks) -> UserFunction:
    """Return a function that returns an `Error` and the result of `f`.

    `errors` are the checks that it makes: `user_checks`, `nan_checks`, `div_checks`,
    `index_checks`, or a union of them. Checks inside of `jit`, `vmap`, loops, branches and
    `checkpoint` count; the first failed one is reported. Of a custom derivative, a pipeline or a
    `shard_map`, only the results are checked automatically. Raise `ArgumentError` for other
    `errors`, and `UnsupportedCheckError` for a `check` inside of one of these three.
    """
    check_function("checkify", f)
    if not isinstance(errors, (frozenset, set)) or not errors <= all_checks:
        raise ArgumentError(
            with_location(
                f"errors of checkify is {brief(errors)}; it is user_checks, nan_checks, "
                "div_checks, index_checks, or a union of them"
            )
        )
    automatic = [kind for kind in AUTOMATIC_CHECKS if kind in errors]
    parameters = Parameters.of(f)

    @wraps(f, updated=())
    def run_with_checks(*args: PyTree, **options: PyTree) -> tuple[Error, PyTree]:
        leaves, structure = tree.flatten((args, options))
        labels = [
            label for i, x in enumerate(args) for label in leaf_labels(parameters.label(i), x)
        ]
        labels += [label for key in sorted(options) for label in leaf_labels(key, options[key])]
        chosen = [i for i, leaf in enumerate(leaves) if is_array_like(leaf)]
        names = [labels[i] for i in chosen]
        found: list[tree.PyTreeDef] = []

        def flat(*tracers: Tracer) -> list[Tracer]:
            filled = list(leaves)
            for i, tracer in zip(chosen, tracers, strict=True):
                filled[i] = tracer
            positional, named = tree.unflatten(structure, filled)
            out = call_user_function(f, parameters.name, positional, named)
            results, kind = tree.flatten(out)
            found.append(kind)
            return [result_tracer(x, i, kind, parameters.name) for i, x in enumerate(results)]

        def run(*tracers: Tracer) -> tuple[Error, PyTree]:
            abstracts = [tracer.abstract for tracer in tracers]
            with check_indices("index" in errors):
                function, results = trace_function(
                    flat, abstracts, parameters.name, names, tracers, tracers
                )
            try:
                made = functionalize_checks(function, automatic)
            except UnsupportedCheckError as reason:
                raise UnsupportedCheckError(with_location(str(reason))) from None
            values = append_block(made.function.body, tracers, function.body)
            count = len(results)
            out = [wrap_value(v, a.weak) for v, a in zip(values[:count], results, strict=True)]
            code, *rest = map(wrap_value, values[count:])
            error = Error(code, rest, made.checks, made.counts)
            return error, tree.unflatten(found[-1], out)

        given = [leaves[i] for i in chosen]
        if current_trace() is not None:
            return run(*map(as_tracer, given))
        result: tuple[Error, PyTree] = run_temporary(run, parameters.name, given, names)
        return result

    return run_with_checks
