"""Derivatives at a point: `jvp`, `vjp` and `linearize`.

The function is traced at the point. The residuals of a derivative are stored with it, as values of
the enclosing trace or, outside of a trace, as arrays. It can therefore be applied repeatedly, also
in other programs.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_util import Partial
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.resharding import apply_out_sharding
from shardir.frontend.shardings.traced_constraints import cotangent_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import convert, operand_dtype
from shardir.frontend.tracing.promotion import user_dtype
from shardir.frontend.tracing.trace import append_block, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import find_explicit_sharding
from shardir.frontend.tracing.varying_axes import vary_along, varying_axes_of
from shardir.frontend.transforms.differentiated_arguments import FLOAT0
from shardir.frontend.transforms.linearization_point import (
    Primals,
    check_directions,
    run_derivative_pass,
)
from shardir.frontend.transforms.pullback import Pullback, PullbackRule
from shardir.ir.module import Function
from shardir.ir.operation import NOT_VARYING, Varying
from shardir.ir.types import INEXACT
from shardir.passes.autodiff import jvp as forward
from shardir.passes.autodiff.vjp import linearize as reverse


@traceback_boundary
def jvp(
    fun: UserFunction,
    primals: Sequence[PyTree],
    tangents: Sequence[PyTree],
    has_aux: bool = False,
) -> tuple[PyTree, ...]:
    """Return the results of `fun(*primals)`, and their tangents for the tangents of the arguments.

    Tangents have the pytree structure of the arguments, and each has the type of its argument.
    Tangents of integer arguments and results have the empty type `float0`. With `has_aux`, `fun`
    returns `(results, aux)`, and the result is `(results, tangents, aux)`.

    Raises `ArgumentError` for tangents that do not fit, and `DifferentiateError` for operations
    without a derivative.
    """
    for word, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise ArgumentError(
                with_location(
                    f"jvp takes its {word} as a tuple, one for each argument, got {given!r}; "
                    f"write ({given!r},)"
                )
            )
    at = Primals.of("jvp", fun, primals, has_aux)
    steps = at.check_tangents("tangent", tangents)

    def push_forward(*tracers: Tracer) -> PyTree:
        count = len(at.active)
        traced = at.trace(tracers[:count])
        ahead = run_derivative_pass(lambda: forward.jvp(traced.function, range(count)))
        converted = _convert_to_types_of(tracers[count:], tracers[:count])
        values = append_block(ahead.body, [*tracers[:count], *converted], traced.function.body)
        results = traced.wrap_results(values)
        remaining = iter(values[len(traced.results) :])
        each = [
            wrap_value(next(remaining), result.weak)
            for result in traced.results
            if result.type.dtype in INEXACT
        ]
        return (*results, each[: traced.num_inexact_results])

    labels = [*at.names, *(f"{name}.tangent" for name in at.names)]
    results, aux, given = at.run(push_forward, [*at.primals, *steps], labels)
    given = _vary_along(given, _find_varying_axes(tree.leaves(results)))
    out_tangents = _unflatten_derivatives(results, given)
    return (results, out_tangents, aux) if has_aux else (results, out_tangents)


@traceback_boundary
def vjp(fun: UserFunction, *primals: PyTree, has_aux: bool = False) -> tuple[PyTree, ...]:
    """Return the results of `fun(*primals)`, and the function from their cotangents to gradients.

    That function takes cotangents in the pytree structure of the results, each of the type of its
    result, and returns a tuple with the gradient of each argument. It may be called any number of
    times. Gradients of integers have the empty type `float0`. With `has_aux`, `fun` returns
    `(results, aux)`, and the result is `(results, pullback, aux)`. The function is a pytree of its
    residuals, so that `jit` may return it and take it. Its `args_res` are the arguments among them,
    which may be replaced by `None` until the call, to release their memory.

    Raises `DifferentiateError` for operations without a derivative.
    """
    return vjp_per_device(fun, primals, has_aux, NOT_VARYING)


def vjp_per_device(
    fun: UserFunction, primals: Sequence[PyTree], has_aux: bool, own: Varying
) -> tuple[PyTree, ...]:
    """Return the same as `vjp`; along the manual axes `own` each device has separate arguments."""
    at = Primals.of("vjp", fun, primals, has_aux, own)

    def derive(function: Function, moving: Sequence[int]) -> tuple[Function, Function]:
        both = reverse(function, range(len(at.active)), moving)
        return both.forward, both.pullback

    results, aux, rest = at.linearize(derive)
    made, structure = tree.flatten(results)
    # The pullback does not keep arguments and results, but their types.
    arguments, leaves = tuple(map(_type_of, at.leaves)), list(map(_type_of, made))
    stated = [find_explicit_sharding(at.leaves[i]) for i in at.active]
    shardings = [None if each is None else cotangent_sharding(each) for each in stated]
    name, weak, argument_structure = at.name, at.weak, at.structure
    varying = _find_varying_axes([at.leaves[i] for i in at.active])
    linear = replace(rest, residuals=())

    def apply(residuals: Sequence[object], cotangents: PyTree) -> PyTree:
        whose = f"the pullback of {name}"
        given = check_directions("cotangent", whose, "result", leaves, structure, cotangents)
        like = [x for x in leaves if operand_dtype(x)[0] in INEXACT]
        linear.check_cotangents(given)
        gradients = replace(linear, residuals=residuals)(given, like, weak)
        gradients = _vary_along(gradients, varying)
        if any(shardings):
            # As in JAX, the sharding in the type of an argument determines that of its gradient.
            gradients = [
                apply_out_sharding(gradient, sharding)
                for gradient, sharding in zip(gradients, shardings, strict=True)
            ]
        return _unflatten_derivatives(tree.unflatten(argument_structure, arguments), gradients)

    sources = tuple([None if i is None else at.active[i] for i in rest.sources])
    rule = PullbackRule(name, apply, sources, arguments, argument_structure, tuple(at.labels))
    back = Pullback.of(rule, rest.residuals)
    return (results, back, aux) if has_aux else (results, back)


@traceback_boundary
def linearize(fun: UserFunction, *primals: PyTree, has_aux: bool = False) -> tuple[PyTree, ...]:
    """Return the results of `fun(*primals)`, and the function from tangents of arguments to theirs.

    Everything that does not depend on the tangents is computed once. With `has_aux`, `fun` returns
    `(results, aux)`, and the result is `(results, pushforward, aux)`. See `jvp`.
    """
    at = Primals.of("linearize", fun, primals, has_aux)

    def derive(function: Function, moving: Sequence[int]) -> tuple[Function, Function]:
        both = forward.linearize_forward(function, range(len(at.active)), moving)
        return both.forward, both.pushforward

    results, aux, rest = at.linearize(derive)
    varying = _find_varying_axes(tree.leaves(results))

    @traceback_boundary
    def pushforward(saved: object, *tangents: PyTree) -> PyTree:
        given = at.check_tangents("tangent", tangents)
        weak = [operand_dtype(x)[1] for x in tree.leaves(results) if operand_dtype(x)[0] in INEXACT]
        derivatives = replace(rest, residuals=saved)(given, at.primals, weak)
        return _unflatten_derivatives(results, _vary_along(derivatives, varying))

    onward = Partial(pushforward, rest.residuals)
    return (results, onward, aux) if has_aux else (results, onward)


def _find_varying_axes(values: Sequence[object]) -> list[Varying]:
    """Return the manual axes along which the values of inexact types among `values` vary."""
    inexact = [x for x in values if operand_dtype(x)[0] in INEXACT]
    return varying_axes_of([x if isinstance(x, Tracer) else NOT_VARYING for x in inexact])


def _vary_along(derivatives: Sequence[object], varying: Sequence[Varying]) -> list[object]:
    """Return derivatives that vary as the values do to which they belong, zeros too."""
    return [
        vary_along(each, axes) if isinstance(each, Tracer) else each
        for each, axes in zip(derivatives, varying, strict=True)
    ]


def _type_of(x: object) -> ShapeDtypeStruct:
    """Return the shape, element type and weakness of an array."""
    abstract = abstract_of(x)
    dtype = user_dtype(abstract.type.dtype)
    return ShapeDtypeStruct(abstract.type.shape, dtype, weak_type=abstract.weak)


def _unflatten_derivatives(like: object, derivatives: Sequence[object]) -> PyTree:
    """Return derivatives in the structure of `like`, with `float0` arrays where it has integers."""
    leaves, structure = tree.flatten(like)
    given = iter(derivatives)
    return tree.unflatten(
        structure,
        [
            next(given)
            if operand_dtype(leaf)[0] in INEXACT
            else np.zeros(abstract_of(leaf).type.shape, FLOAT0)
            for leaf in leaves
        ],
    )


def _convert_to_types_of(tracers: Sequence[Tracer], like: Sequence[Tracer]) -> list[Tracer]:
    """Return Python numbers, which have weak types, converted to the types of `like`."""
    pairs = zip(tracers, like, strict=True)
    return [convert(x, y.value.type.dtype) for x, y in pairs]
