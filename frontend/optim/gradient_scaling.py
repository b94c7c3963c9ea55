"""Gradient transformations that scale or limit updates; optimizers are composed of them."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation import array_conversion, filling
from shardir.frontend.numpy.elementwise import arithmetic, complex_parts, math_functions, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.optim.argument_checks import check_numbers, check_state, check_structure
from shardir.frontend.optim.schedules import LearningRate, Scalar, Schedule
from shardir.frontend.optim.transformations import Transformation, require_params, stateless
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import KEYS

Mask: TypeAlias = PyTree
"""A container of bools like the parameters, or a function from parameters to one."""


@with_argument_errors
def scale(factor: Scalar) -> Transformation:
    """Return a transformation that multiplies updates by a number."""
    check_numbers("scale", factor=factor)
    return stateless(lambda updates, params: tree.map(lambda x: x * factor, updates))


class CountState(NamedTuple):
    """The number of steps taken."""

    count: Tracer  # type: ignore[assignment]  # `tuple.count` is not used


@with_argument_errors
def scale_by_schedule(schedule: Schedule) -> Transformation:
    """Return a transformation that multiplies updates by `schedule(step)`; steps count from 0."""
    check_function("scale_by_schedule", schedule)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, CountState]:
        updates = check_state("scale_by_schedule", state, CountState, updates)
        what = "the schedule of scale_by_schedule"
        factor = array_conversion.asarray(call_user_function(schedule, what, (state.count,)))
        scaled = tree.map(lambda x: x * factor.astype(x.dtype), updates)
        return scaled, CountState(state.count + 1)

    return Transformation(lambda params: CountState(filling.zeros((), "int32")), update)


@with_argument_errors
def scale_by_learning_rate(rate: LearningRate) -> Transformation:
    """Return a transformation that multiplies updates by the negative learning rate.

    The rate is a number or a schedule; raise `ArgumentError` for another object.
    """
    if callable(rate):

        def negative_rate(count: Scalar) -> Scalar:
            found: Scalar = call_user_function(rate, "the learning rate", (count,))
            check_numbers("the learning rate", result=found)
            return -found

        return scale_by_schedule(negative_rate)
    if not is_array_like(rate):
        raise ArgumentError(
            with_location(f"a learning rate is a number or a function of the step, got {rate!r}")
        )
    kind = abstract_of(rate, "the learning rate").type.dtype
    if kind in ("bool", *KEYS):
        raise ArgumentError(with_location(f"a learning rate is a number, got {kind}"))
    return scale(-rate)


class TraceState(NamedTuple):
    """The decayed sum of gradients."""

    trace: object


@with_argument_errors
def trace(decay: float, nesterov: bool = False) -> Transformation:
    """Return a transformation to the sum of all gradients, decayed by `decay` per step.

    With `nesterov`, the sum is one step ahead.
    """
    check_numbers("trace", decay=decay)
    nesterov = check_flag("nesterov of trace", nesterov)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, TraceState]:
        updates = check_state("trace", state, TraceState, updates)

        def accumulate(gradient: Tracer, before: Tracer) -> Tracer:
            return gradient + decay * before

        after = tree.map(accumulate, updates, state.trace)
        return (tree.map(accumulate, updates, after) if nesterov else after), TraceState(after)

    return Transformation(lambda params: TraceState(tree.map(filling.zeros_like, params)), update)


class AdamState(NamedTuple):
    """The number of steps, and running means of gradients (`mu`) and of their squares (`nu`)."""

    count: Tracer  # type: ignore[assignment]  # `tuple.count` is not used
    mu: object
    nu: object


def _running_mean(decay: float, power: int) -> Callable[[Tracer, Tracer], Tracer]:
    def mean(gradient: Tracer, before: Tracer) -> Tracer:
        moment = (
            gradient if power == 1 else complex_parts.real(gradient * complex_parts.conj(gradient))
        )
        return (1 - decay) * moment + decay * before

    return mean


@with_argument_errors
def scale_by_adam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    nesterov: bool = False,
) -> Transformation:
    """Return a transformation to the running mean of gradients over the root of that of squares.

    Kingma, Ba, "Adam: a method for stochastic optimization", 2014; with `nesterov`, Dozat,
    "Incorporating Nesterov momentum into Adam", 2016.
    """
    check_numbers("scale_by_adam", b1=b1, b2=b2, eps=eps, eps_root=eps_root)
    nesterov = check_flag("nesterov of scale_by_adam", nesterov)

    def init(params: PyTree) -> AdamState:
        zeros = tree.map(filling.zeros_like, params)
        return AdamState(filling.zeros((), "int32"), zeros, tree.map(filling.zeros_like, params))

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, AdamState]:
        updates = check_state("scale_by_adam", state, AdamState, updates)
        mu = tree.map(_running_mean(b1, 1), updates, state.mu)
        nu = tree.map(_running_mean(b2, 2), updates, state.nu)
        count = state.count + 1
        if nesterov:
            hat = tree.map(
                lambda g, m: (
                    (1 - b1) * _correct_bias(b1, count)(g) + b1 * _correct_bias(b1, count + 1)(m)
                ),
                updates,
                mu,
            )
        else:
            hat = tree.map(_correct_bias(b1, count), mu)
        squares = tree.map(_correct_bias(b2, count), nu)
        scaled = tree.map(lambda m, v: m / (math_functions.sqrt(v + eps_root) + eps), hat, squares)
        return scaled, AdamState(count, mu, nu)

    return Transformation(init, update)


def _correct_bias(decay: float, count: Tracer) -> Callable[[Tracer], Tracer]:
    """Return a function that corrects the bias of a running mean that began at zero."""
    return lambda moment: moment / (1 - decay**count).astype(moment.dtype)


class MeanState(NamedTuple):
    """A running mean."""

    nu: object


@with_argument_errors
def scale_by_rms(decay: float = 0.9, eps: float = 1e-8, initial: float = 0.0) -> Transformation:
    """Return a transformation that divides by the root of the running mean of squares.

    Tieleman, Hinton, "Lecture 6.5: RMSprop", 2012.
    """
    check_numbers("scale_by_rms", decay=decay, eps=eps, initial=initial)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, MeanState]:
        updates = check_state("scale_by_rms", state, MeanState, updates)
        nu = tree.map(_running_mean(decay, 2), updates, state.nu)
        return tree.map(lambda g, v: g / math_functions.sqrt(v + eps), updates, nu), MeanState(nu)

    def init(params: PyTree) -> MeanState:
        return MeanState(tree.map(lambda x: filling.full_like(x, initial), params))

    return Transformation(init, update)


@with_argument_errors
def scale_by_root_of_squares(initial: float = 0.1, eps: float = 1e-7) -> Transformation:
    """Return a transformation that divides by the root of the sum of all squares.

    Duchi, Hazan, Singer, "Adaptive subgradient methods", 2011.
    """
    check_numbers("scale_by_root_of_squares", initial=initial, eps=eps)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, MeanState]:
        updates = check_state("scale_by_root_of_squares", state, MeanState, updates)
        total = tree.map(lambda g, t: g * g + t, updates, state.nu)

        def scale_gradient(g: Tracer, t: Tracer) -> Tracer:
            return selection.where(t > 0, g / math_functions.sqrt(t + eps), 0.0)

        return tree.map(scale_gradient, updates, total), MeanState(total)

    def init(params: PyTree) -> MeanState:
        return MeanState(tree.map(lambda x: filling.full_like(x, initial), params))

    return Transformation(init, update)


class LionState(NamedTuple):
    """The running mean of gradients."""

    mu: object


@with_argument_errors
def scale_by_lion(b1: float = 0.9, b2: float = 0.99) -> Transformation:
    """Return a transformation to the sign of a mean of the gradient and the running mean.

    Chen et al., "Symbolic discovery of optimization algorithms", 2023.
    """
    check_numbers("scale_by_lion", b1=b1, b2=b2)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, LionState]:
        updates = check_state("scale_by_lion", state, LionState, updates)
        signs = tree.map(lambda g, m: complex_parts.sign((1 - b1) * g + b1 * m), updates, state.mu)
        return signs, LionState(tree.map(_running_mean(b2, 1), updates, state.mu))

    return Transformation(lambda params: LionState(tree.map(filling.zeros_like, params)), update)


@with_argument_errors
def add_decayed_weights(weight_decay: float, mask: Mask = None) -> Transformation:
    """Return a transformation that adds `weight_decay` times the parameters.

    `mask` selects the parameters.
    """
    check_numbers("add_decayed_weights", weight_decay=weight_decay)

    def add_decay(updates: PyTree, params: PyTree) -> PyTree:
        weights = require_params("add_decayed_weights", params)
        check_structure("params", weights, updates)
        if mask is None:
            return tree.map(lambda g, p: g + weight_decay * p, updates, weights)
        label, leaf_label = (
            "the mask of add_decayed_weights",
            "each of the mask of add_decayed_weights",
        )
        chosen = call_user_function(mask, label, (weights,)) if callable(mask) else mask
        return tree.map(
            lambda g, p, m: g + weight_decay * p if check_flag(leaf_label, m) else g,
            updates,
            weights,
            chosen,
        )

    return stateless(add_decay)


@with_argument_errors
def global_norm(updates: PyTree) -> Tracer:
    """Return the square root of the sum of squares of all elements in a container."""
    squares = [
        basic_reductions.sum(complex_parts.real(x * complex_parts.conj(x)))
        for x in tree.leaves(updates)
    ]
    total = squares[0] if squares else filling.zeros(())
    for square in squares[1:]:
        total = total + square
    return math_functions.sqrt(total)


@with_argument_errors
def clip(max_delta: float) -> Transformation:
    """Return a transformation that clamps every element to [-max_delta, max_delta]."""
    check_numbers("clip", max_delta=max_delta)

    def clip_updates(updates: PyTree, params: PyTree) -> PyTree:
        lower = arithmetic.negative(max_delta)
        return tree.map(lambda x: selection.clip(x, lower, max_delta), updates)

    return stateless(clip_updates)


@with_argument_errors
def clip_by_global_norm(max_norm: float) -> Transformation:
    """Return a transformation that scales all updates if their global norm exceeds `max_norm`.

    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2012.
    """
    check_numbers("clip_by_global_norm", max_norm=max_norm)

    def clip_updates(updates: PyTree, params: PyTree) -> PyTree:
        norm = global_norm(updates)
        return tree.map(
            lambda x: selection.where(norm < max_norm, x, x / norm.astype(x.dtype) * max_norm),
            updates,
        )

    return stateless(clip_updates)
