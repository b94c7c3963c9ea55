"""Varying manual axes: along which axes of a manual computation a value may differ.

The type of a value inside a manual computation has one more part, which follows from how the value
was made: the manual axes along which it may differ from device to device (JAX: `vma`). A value
that does not vary along an axis is one value that the devices along it share.

Each operation has one rule. It says along which axes the operands have to vary, which is what
`vary` is put in for, and along which axes the results do. Most operations need no rule of their
own: all operands vary along the same axes, and so do the results (`joined`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shardir.placement import Axes, Axis

Varying = frozenset[Axis]
NONE: Varying = frozenset()


class Vma(NamedTuple):
    """Along which axes each operand has to vary, and along which axes all results do."""

    operands: tuple[Varying, ...]
    results: Varying


Rule = Callable[..., Vma]
"""(what each operand varies along, attributes) -> what it has to, and what the results do."""


def joined(operands: Sequence[Varying], **_: Any) -> Vma:
    """The rule of operations that every device does by itself."""
    every = NONE.union(*operands)
    return Vma((every,) * len(operands), every)


def exchanged(operands: Sequence[Varying], *, axes: Axes = (), **attrs: Any) -> Vma:
    """The rule of communication after which devices along the axes may have different values."""
    sent = (*axes, *attrs.get("source", ()), *attrs.get("target", ()))
    every = NONE.union(*operands, sent)
    return Vma((every,) * len(operands), every)


def combined(operands: Sequence[Varying], *, axes: Axes, **_: Any) -> Vma:
    """The rule of communication after which devices along the axes have the same value."""
    every = NONE.union(*operands, axes)
    return Vma((every,) * len(operands), every - frozenset(axes))


def made_varying(operands: Sequence[Varying], *, axes: Axes, **_: Any) -> Vma:
    """The rule of `vary`: nothing is asked of the operand."""
    return Vma(tuple(operands), NONE.union(*operands, axes))
