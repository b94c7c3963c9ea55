"""Optimizers with their usual names. Learning rates are numbers or schedules."""

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.optim.gradient_scaling import (
    Mask,
    add_decayed_weights,
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    scale_by_root_of_squares,
    trace,
)
from shardir.frontend.optim.schedules import LearningRate
from shardir.frontend.optim.transformations import Transformation, chain, identity


@with_argument_errors
def sgd(
    learning_rate: LearningRate, momentum: float | None = None, nesterov: bool = False
) -> Transformation:
    """Return stochastic gradient descent, with `momentum` along the decayed sum of gradients."""
    first = identity() if momentum is None else trace(momentum, nesterov)
    return chain(first, scale_by_learning_rate(learning_rate))


@with_argument_errors
def momentum(
    learning_rate: LearningRate, decay: float = 0.9, nesterov: bool = False
) -> Transformation:
    """Return `sgd` with momentum."""
    return sgd(learning_rate, decay, nesterov)


@with_argument_errors
def adam(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    *,
    nesterov: bool = False,
) -> Transformation:
    """Return Adam; see `scale_by_adam`."""
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, nesterov), scale_by_learning_rate(learning_rate)
    )


@with_argument_errors
def adamw(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 1e-4,
    mask: Mask = None,
    *,
    nesterov: bool = False,
) -> Transformation:
    """Return Adam with decoupled weight decay of the parameters that `mask` selects.

    Loshchilov, Hutter, "Decoupled weight decay regularization", 2019.
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, nesterov),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


@with_argument_errors
def rmsprop(
    learning_rate: LearningRate,
    decay: float = 0.9,
    eps: float = 1e-8,
    momentum: float | None = None,
) -> Transformation:
    """Return RMSprop; see `scale_by_rms`."""
    last = identity() if momentum is None else trace(momentum)
    return chain(scale_by_rms(decay, eps), scale_by_learning_rate(learning_rate), last)


@with_argument_errors
def adagrad(
    learning_rate: LearningRate, initial_accumulator_value: float = 0.1, eps: float = 1e-7
) -> Transformation:
    """Return Adagrad; see `scale_by_root_of_squares`."""
    return chain(
        scale_by_root_of_squares(initial_accumulator_value, eps),
        scale_by_learning_rate(learning_rate),
    )


@with_argument_errors
def lion(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.99,
    weight_decay: float = 1e-3,
    mask: Mask = None,
) -> Transformation:
    """Return Lion; see `scale_by_lion`."""
    return chain(
        scale_by_lion(b1, b2),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
