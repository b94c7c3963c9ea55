"""Limits of the size of updates."""

from typing import Any

from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import arithmetic, complex_parts, math_functions, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.optim.argument_checks import check_numbers
from shardir.frontend.optim.transformations import Transformation, stateless
from shardir.frontend.pytree import tree


def global_norm(updates: Any) -> Any:
    """Return the square root of the sum of squares of all elements in a container."""
    squares = [
        basic_reductions.sum(complex_parts.real(x * complex_parts.conj(x)))
        for x in tree.leaves(updates)
    ]
    total = squares[0] if squares else filling.zeros(())
    for square in squares[1:]:
        total = total + square
    return math_functions.sqrt(total)


def clip(max_delta: float) -> Transformation:
    """Return a transformation that clamps every element to [-max_delta, max_delta]."""
    check_numbers("clip", max_delta=max_delta)

    def clip_updates(updates: Any, params: Any) -> Any:
        lower = arithmetic.negative(max_delta)
        return tree.map(lambda x: selection.clip(x, lower, max_delta), updates)

    return stateless(clip_updates)


def clip_by_global_norm(max_norm: float) -> Transformation:
    """Return a transformation that scales all updates if their global norm exceeds `max_norm`.

    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2012.
    """
    check_numbers("clip_by_global_norm", max_norm=max_norm)

    def clip_updates(updates: Any, params: Any) -> Any:
        norm = global_norm(updates)
        return tree.map(
            lambda x: selection.where(norm < max_norm, x, x / norm.astype(x.dtype) * max_norm),
            updates,
        )

    return stateless(clip_updates)
