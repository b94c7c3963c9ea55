"""`print_saved_residuals`: the values that a gradient saves from the forward computation."""

import builtins
from collections.abc import Iterator, Sequence

from shardir import ops as specs
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import NotAnArrayError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import operand_dtype
from shardir.frontend.tracing.parameters import Parameters, leaf_labels
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.linearization_point import Primals, run_derivative_pass
from shardir.ir.module import Function, Op, Value
from shardir.ir.types import INEXACT
from shardir.passes.autodiff.vjp import linearize


@traceback_boundary
def print_saved_residuals(fun: UserFunction, *args: PyTree, **options: PyTree) -> None:
    """Print a line for each value that reverse mode of `fun` at these arguments saves.

    A line states the type of the value and its origin: an argument, a value that `fun` captured, or
    the operation that computed it, with its name from `checkpoint_name` and its line. Values that
    are cheap to compute again, such as broadcasts, are not saved. Raise `NotAnArrayError` for an
    argument that is not an array, and `DifferentiateError` for a function without derivative.
    """
    check_function("print_saved_residuals", fun)
    for line in _describe_residuals(fun, args, options):
        builtins.print(line)


def _describe_residuals(
    fun: UserFunction, args: Sequence[PyTree], options: dict[str, PyTree]
) -> list[str]:
    parameters = Parameters.of(fun)

    def call(args: Sequence[PyTree], options: dict[str, PyTree]) -> PyTree:
        return call_user_function(fun, parameters.name, args, options)

    leaves, structure = tree.flatten((tuple(args), options))
    labels = [label for i, x in enumerate(args) for label in leaf_labels(parameters.label(i), x)]
    labels += [label for key in sorted(options) for label in leaf_labels(key, options[key])]
    for leaf, label in zip(leaves, labels, strict=True):
        if not is_array_like(leaf):
            raise NotAnArrayError(
                with_location(
                    f"print_saved_residuals of {parameters.name} takes arrays, and {label} is "
                    f"{brief_with_type(leaf)}; let the function capture it, for example in a lambda"
                )
            )
    active = [i for i, leaf in enumerate(leaves) if operand_dtype(leaf)[0] in INEXACT]
    primals = Primals(
        "print_saved_residuals", call, parameters.name, False, leaves, structure, labels, active
    )
    lines: list[str] = []

    def describe(*tracers: Tracer) -> list[Tracer]:
        traced = primals.trace(tracers)
        both = run_derivative_pass(
            lambda: linearize(traced.function, range(len(tracers)), traced.inexact_results)
        )
        values = both.forward.body.returns[len(traced.function.body.returns) :]
        captured = both.pullback.body.captures()
        lines.extend(_describe_values(both.forward, values, captured, primals.names))
        return []

    primals.run(describe, primals.primals, primals.names)
    return lines


def _describe_values(
    forward: Function, values: Sequence[Value], captured: Sequence[Value], names: Sequence[str]
) -> Iterator[str]:
    for value in captured:
        yield f"{value.type} from a captured value"
    saved = set(values)
    for param, name in zip(forward.body.params, names, strict=True):
        if param in saved:
            yield f"{param.type} from the argument {name}"
    for op in forward.body.ops:
        for value in op.results:
            if value in saved:
                yield f"{value.type} {_describe_origin(op)}"


def _describe_origin(op: Op) -> str:
    place = "" if op.loc is None else f" from {op.loc}"
    if op.spec is specs.checkpoint_name:
        return f"named {op.attrs['label']!r}{place}"
    return f"output of {op.name}{place}"
