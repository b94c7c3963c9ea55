"""Varying manual axes (JAX: `vma`): the axes along which a value may differ between devices.

The type of a value inside a manual computation includes the set of manual axes along which the
value may differ from device to device. It follows from the operations that compute the value. A
value that does not vary along an axis is equal on all devices along it.

Each operation has one rule, which states along which axes the operands must vary (`vary` operations
are inserted for that) and along which axes the results vary. Most operations use the default rule
`join_varying`: all operands and results vary along the same axes.
"""

from collections.abc import Sequence
from typing import Protocol

from shardir.ir.operation import NOT_VARYING, Varying, Vma
from shardir.ir.sharding import Axes


class HasAxes(Protocol):
    """Attributes that name the mesh axes along which an operation communicates."""

    @property
    def axes(self) -> Axes: ...


def join_varying(operands: Sequence[Varying], **_: object) -> Vma:
    """Apply the rule of operations without communication."""
    every = NOT_VARYING.union(*operands)
    return Vma((every,) * len(operands), every)


def exchange_varying(operands: Sequence[Varying], *, attributes: HasAxes) -> Vma:
    """Apply the rule of communication whose results may differ along the axes."""
    return vary_along(operands, attributes.axes)


def vary_along(operands: Sequence[Varying], axes: Axes) -> Vma:
    """Return that operands and results vary along the axes and those of all operands."""
    every = NOT_VARYING.union(*operands, axes)
    return Vma((every,) * len(operands), every)


def reduce_varying(operands: Sequence[Varying], *, attributes: HasAxes) -> Vma:
    """Apply the rule of communication whose results are equal along the axes."""
    every = NOT_VARYING.union(*operands, attributes.axes)
    return Vma((every,) * len(operands), every - frozenset(attributes.axes))


def make_varying(operands: Sequence[Varying], *, attributes: HasAxes) -> Vma:
    """Apply the rule of `vary`, which accepts any operand."""
    return Vma(tuple(operands), NOT_VARYING.union(*operands, attributes.axes))
