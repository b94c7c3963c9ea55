"""Taylor-mode differentiation: `shardir.experimental.jet.jet`.

The Taylor series of f(h(t)) at t = 0, with a polynomial h, consists of its derivatives along t.
Forward mode is applied to the function of t once for each order, so that the rules of all
operations, of control flow and of `custom_jvp` hold for every order. The number of operations
doubles with each order, before equal ones are merged (J. Bettencourt, M. J. Johnson and
D. Duvenaud, "Taylor-mode automatic differentiation for higher-order derivatives in JAX", 2019,
compare this with propagating all coefficients at once).
"""

from collections.abc import Callable, Sequence
from math import factorial

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function, check_call_signature
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation import filling
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.parameters import function_name
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.jvp_vjp import jvp
from shardir.ir.types import INEXACT, REAL_OF

MAX_ORDER = 10
"""The highest order; each order doubles the number of operations before equal ones are merged."""

Series = Sequence[Sequence[ArrayLike]]
"""For each argument the terms of order 1 and higher."""


@traceback_boundary
def jet(
    fun: UserFunction, primals: Sequence[ArrayLike], series: Series, factorial_scaled: bool = True
) -> tuple[PyTree, PyTree]:
    """Return `fun(*primals)` and the terms of its Taylor series along a path of the arguments.

    The path begins at `primals`; `series` has for each argument the terms of order 1 and higher,
    which are derivatives of the path, or without `factorial_scaled` the coefficients of its powers.
    The second result has the pytree of the result of `fun`, with a list of the terms of the same
    orders, scaled in the same way, in place of each array. Terms of integers are zero. Derivatives
    are those of forward mode, which `custom_vjp` functions do not have. Raise `ArgumentError` for
    arguments that are not arrays, for numbers of terms that differ or exceed 10, and for terms of
    other shapes than their argument.
    """
    check_function("jet", fun)
    name = f"jet of {function_name(fun)}"
    order = _check_series(name, primals, series)
    check_call_signature(fun, function_name(fun), tuple(primals))
    scaled = check_flag("factorial_scaled of jet", factorial_scaled)
    values, terms = _jet(fun, tuple(primals), tuple(map(tuple, series)), order, scaled)
    return values, terms


def _check_series(name: str, primals: object, series: object) -> int:
    """Return the number of terms."""
    for word, given in (("primals", primals), ("series", series)):
        if not isinstance(given, (list, tuple)):
            raise ArgumentError(
                with_location(f"{name} takes a tuple as {word}, got {brief(given)}")
            )
    assert isinstance(primals, (list, tuple))
    assert isinstance(series, (list, tuple))
    if not primals or len(primals) != len(series):
        raise ArgumentError(
            with_location(
                f"{name} takes as many series as arguments, and at least one; got {len(series)} "
                f"and {len(primals)}"
            )
        )
    for i, terms in enumerate(series):
        if not isinstance(terms, (list, tuple)):
            raise ArgumentError(
                with_location(f"series[{i}] of {name} is a tuple of terms, got {brief(terms)}")
            )
    counts = [len(terms) for terms in series]
    if len(set(counts)) > 1 or not 1 <= counts[0] <= MAX_ORDER:
        raise ArgumentError(
            with_location(
                f"{name} takes the same number of terms for each argument, from 1 to {MAX_ORDER}; "
                f"got {', '.join(map(str, counts))}"
            )
        )
    for i, (primal, terms) in enumerate(zip(primals, series, strict=True)):
        for j, each in enumerate((primal, *terms)):
            label = f"term {j - 1} of argument {i}" if j else f"argument {i}"
            if not is_array_like(each):
                raise ArgumentError(
                    with_location(f"{label} of {name} is an array, got {brief(each)}")
                )
            found, expected = (abstract_of(x, label).type.shape for x in (each, primal))
            if found != expected:
                raise ArgumentError(
                    with_location(
                        f"{label} of {name} has shape {found}, and the argument has {expected}"
                    )
                )
    return counts[0]


@public(static=("fun", "order", "scaled"), cached=False, name="jet")
def _jet(
    fun: UserFunction, primals: Sequence[ArrayLike], series: Series, order: int, scaled: bool
) -> tuple[PyTree, PyTree]:
    given = [as_tracer(x) for x in primals]
    moving = [x.value.type.dtype for x in given if x.value.type.dtype in INEXACT]
    dtype = "f32"
    for each in moving:
        dtype = promotion.result_type((dtype, False), (REAL_OF.get(each, each), False))[0]
    structures: list[tree.PyTreeDef] = []
    divisors = [factorial(k) if scaled else 1 for k in range(1, order + 1)]

    def path(t: Tracer) -> list[Tracer]:
        return [
            _evaluate_path(x, terms, t, divisors) for x, terms in zip(given, series, strict=True)
        ]

    def along(t: Tracer) -> tuple[list[Tracer]]:
        result = call_user_function(fun, function_name(fun), path(t))
        leaves, structure = tree.flatten(result)
        structures.append(structure)
        return ([as_tracer(leaf) for leaf in leaves],)

    derivatives: Callable[[Tracer], tuple[list[Tracer], ...]] = along
    for _ in range(order):
        derivatives = _with_next_derivative(derivatives)
    values, *rest = derivatives(convert(as_tracer(0.0), dtype))
    is_weak_path = all(as_tracer(term).weak_type for each in series for term in each)
    terms = [
        [
            _term(leaf, derivative[i], 1 if scaled else factorial(k), is_weak_path)
            for k, derivative in enumerate(rest, 1)
        ]
        for i, leaf in enumerate(values)
    ]
    return tree.unflatten(structures[-1], values), tree.unflatten(structures[-1], terms)


def _evaluate_path(
    x: Tracer, terms: Sequence[ArrayLike], t: Tracer, divisors: Sequence[int]
) -> Tracer:
    """Return a polynomial in `t`, by Horner's rule; an integer is constant."""
    dtype = x.value.type.dtype
    if dtype not in INEXACT:
        return x
    variable = convert(t, dtype)
    coefficients = [
        convert(as_tracer(term), dtype) / divisor
        for term, divisor in zip(terms, divisors, strict=True)
    ]
    result = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = coefficient + variable * result
    return convert(as_tracer(x + variable * result), dtype, x.weak_type)


def _with_next_derivative(
    function: Callable[[Tracer], tuple[list[Tracer], ...]],
) -> Callable[[Tracer], tuple[list[Tracer], ...]]:
    """Return the function with one more derivative, which is that of its last result."""

    def call(t: Tracer) -> tuple[list[Tracer], ...]:
        values, tangents = jvp(function, (t,), (convert(as_tracer(1.0), t.value.type.dtype),))
        last = [
            tangent if value.value.type.dtype in INEXACT else value
            for value, tangent in zip(values[-1], tangents[-1], strict=True)
        ]
        return (*values, last)

    return call


def _term(value: Tracer, derivative: Tracer, divisor: int, is_weak_path: bool) -> Tracer:
    """Return a term; its type is weak if the types of the result and of all given terms are."""
    if value.value.type.dtype not in INEXACT:
        return as_tracer(filling.zeros_like(value))
    weak = value.weak_type and is_weak_path
    return convert(as_tracer(derivative / divisor), value.value.type.dtype, weak)
