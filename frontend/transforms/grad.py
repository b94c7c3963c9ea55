"""`grad` and `value_and_grad`: gradients of Python functions.

The function is traced as a function of the IR, `shardir.passes.autodiff.vjp` computes its
gradient, and the result is inlined into the enclosing program. Outside of a trace the gradient is a
temporary program that is traced at every call, because the captured variables of the function may
have changed; equal programs are compiled once.
"""

from collections.abc import Callable, Sequence

import numpy as np

from shardir.errors import DifferentiateError
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.temporary_programs import run_temporary
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.traced_constraints import match_cotangent_types
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_function
from shardir.frontend.tracing.operands import as_tracer, splat
from shardir.frontend.tracing.parameters import ArgNums, Parameters, leaf_labels
from shardir.frontend.tracing.trace import append_block, current_trace, require_trace, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.varying_axes import make_varying_explicit, vary_like
from shardir.frontend.transforms.differentiated_arguments import (
    FLOAT0,
    active_leaves,
    resolve_argnums,
)
from shardir.frontend.wrappers import wraps
from shardir.ir.types import COMPLEX, INEXACT
from shardir.passes.autodiff.vjp import vjp


@traceback_boundary
def grad(
    fun: UserFunction,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> UserFunction:
    """Return a function that computes the gradient of `fun`, in the pytree structure of its
    argument.

    See `value_and_grad`; with `has_aux` the result is `(gradient, aux)`.
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @traceback_boundary
    @wraps(fun)
    def gradient(*args: PyTree, **options: PyTree) -> PyTree:
        value, gradients = both(*args, **options)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


@traceback_boundary
def value_and_grad(
    fun: UserFunction,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> UserFunction:
    """Return a function that computes `(value, gradient)` of `fun`, whose result is a scalar.

    `argnums` are the positional arguments with respect to which to differentiate, pytrees of
    floating-point arrays: one integer, or several for a tuple of gradients. With `has_aux`, `fun`
    returns `(value, aux)`, and so does the first item of the pair. `holomorphic` is for complex
    functions of complex arguments. `allow_int` accepts arguments with integers, whose gradients are
    NumPy arrays of the empty type `float0`.

    Raises `DifferentiateError` for arguments and results without a derivative, and for operations
    that have none.
    """
    single = isinstance(argnums, int)
    has_aux = check_flag("has_aux of grad", has_aux)
    holomorphic = check_flag("holomorphic of grad", holomorphic)
    allow_int = check_flag("allow_int of grad", allow_int)
    parameters = Parameters.of(fun)

    @traceback_boundary
    @wraps(fun)
    def value_and_gradient(*args: PyTree, **options: PyTree) -> PyTree:
        numbers = resolve_argnums("grad", argnums, args, parameters)
        chosen = tuple(args[i] for i in numbers)
        leaves, structure = tree.flatten(chosen)
        labels = [
            label
            for i, arg in zip(numbers, chosen, strict=True)
            for label in leaf_labels(parameters.label(i), arg)
        ]
        active = active_leaves("grad", leaves, labels, parameters.name, holomorphic, allow_int)

        def differentiate(*tracers: Tracer) -> PyTree:
            given = list(leaves)
            for i, tracer in zip(active, tracers, strict=True):
                given[i] = tracer

            def run(inner: Sequence[Tracer]) -> PyTree:
                filled = list(given)
                for i, tracer in zip(active, inner, strict=True):
                    filled[i] = tracer
                whole = list(args)
                for i, arg in zip(numbers, tree.unflatten(structure, filled), strict=True):
                    whole[i] = arg
                return call_user_function(fun, parameters.name, whole, options)

            names = [labels[i] for i in active]
            return _differentiate(run, tracers, names, parameters.name, has_aux, holomorphic)

        selected = [leaves[i] for i in active]
        if current_trace() is not None:
            value, aux, gradients = differentiate(*map(as_tracer, selected))
        else:
            names = [labels[i] for i in active]
            value, aux, gradients = run_temporary(differentiate, parameters.name, selected, names)
        each = [np.zeros(np.shape(leaf), FLOAT0) for leaf in leaves]
        for i, gradient in zip(active, gradients, strict=True):
            each[i] = gradient
        unflat = tree.unflatten(structure, each)
        return ((value, aux) if has_aux else value), (unflat[0] if single else unflat)

    return value_and_gradient


def _differentiate(
    run: Callable[[Sequence[Tracer]], PyTree],
    tracers: Sequence[Tracer],
    names: Sequence[str],
    name: str,
    has_aux: bool,
    holomorphic: bool,
) -> tuple[Tracer, PyTree, list[Tracer]]:
    """Return value, auxiliary data and gradients of `run` at `tracers`, in the current trace."""
    structure: list[tree.PyTreeDef] = []

    def flat(*inner: Tracer) -> list[Tracer]:
        out = run(inner)
        if has_aux and not (isinstance(out, tuple) and len(out) == 2):
            raise ArgumentError(
                with_location(
                    f"{name} has has_aux=True, so it must return (value, aux); it returned {out!r}"
                )
            )
        value, aux = out if has_aux else (out, None)
        rest, found = tree.flatten(aux)
        structure.append(found)
        each = [result_tracer(leaf, i, found, name) for i, leaf in enumerate(rest)]
        return [_check_scalar_result(value, name, holomorphic), *each]

    abstracts = [tracer.abstract for tracer in tracers]
    function, results = trace_function(flat, abstracts, name, names, tracers, tracers)
    function = make_varying_explicit(function, tracers).function
    try:
        both = vjp(function, range(len(tracers)), [0])
    except DifferentiateError as error:
        raise DifferentiateError(with_location(str(error))) from None
    seed = splat(1, results[0].type, weak=results[0].weak)
    program = require_trace("a gradient").program
    program.assign_name(seed.value, program.names.fresh(both.body.params[-1].name))
    values = append_block(both.body, [*tracers, seed], function.body)
    weak = [result.weak for result in (*results, *abstracts)]
    made = [wrap_value(value, is_weak) for value, is_weak in zip(values, weak, strict=True)]
    value, aux = made[0], made[1 : len(results)]
    gradients = match_cotangent_types(made[len(results) :], tracers)
    # A gradient that is zero varies along the axes of its argument, too.
    gradients = [vary_like(each, x) for each, x in zip(gradients, tracers, strict=True)]
    return value, tree.unflatten(structure[0], aux), gradients


def _check_scalar_result(value: Tracer, name: str, holomorphic: bool) -> Tracer:
    """Return the result of a function that has a gradient; raises `DifferentiateError` for
    others."""
    if not is_array_like(value):
        raise DifferentiateError(
            with_location(
                f"grad of {name} needs a scalar result, and it is {type(value).__name__}; return "
                "one array of rank 0, or (value, aux) with has_aux=True"
            )
        )
    tracer = as_tracer(value)
    if tracer.shape:
        raise DifferentiateError(
            with_location(
                f"grad of {name} needs a scalar result, and it is {tracer.value.type}; reduce it, "
                "for example with .sum() or .mean()"
            )
        )
    dtype = tracer.value.type.dtype
    if dtype not in INEXACT or (dtype in COMPLEX) != holomorphic:
        number_kind = "complex" if holomorphic else "real floating-point"
        raise DifferentiateError(
            with_location(
                f"grad of {name} needs a {number_kind} result, and it is {tracer.value.type}"
                + ("; set holomorphic=True for complex functions" if dtype in COMPLEX else "")
            )
        )
    return tracer
