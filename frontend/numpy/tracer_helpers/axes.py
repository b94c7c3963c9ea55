"""Validation and canonicalization of the axes that users pass."""

from collections.abc import Iterable
from operator import index

from shardir.frontend.argument_checks import as_items
from shardir.frontend.arrays.array_types import AxisLike
from shardir.frontend.errors import AxisError, ShapeError, TracedValueError
from shardir.frontend.source_locations import with_location


def canonicalize_axis(axis: AxisLike, rank: int) -> int:
    """Return the axis counted from the front; raise `AxisError` unless -rank <= axis < rank."""
    try:
        number = index(axis)  # type: ignore[arg-type]
    except TypeError as error:
        if isinstance(error, TracedValueError):
            raise
        raise _not_an_axis_error(axis) from None
    if isinstance(axis, bool):
        raise _not_an_axis_error(axis)
    if not -rank <= number < rank:
        raise AxisError(with_location(f"axis {axis} is out of range for an array of rank {rank}"))
    return number % rank


def _not_an_axis_error(axis: object) -> AxisError:
    return AxisError(with_location(f"an axis must be an integer, got {axis!r}"))


def canonicalize_axes(axes: object, rank: int) -> tuple[int, ...]:
    """Return one or several axes as a tuple of axes counted from the front; `None` means all axes.

    Raise `AxisError` if an axis is out of range or occurs twice.
    """
    if axes is None:
        return tuple(range(rank))
    given = as_items(axes)
    result = tuple(canonicalize_axis(axis, rank) for axis in given)
    if len(set(result)) != len(result):
        raise AxisError(with_location(f"axes {tuple(given)} name one dimension twice"))
    return result


def check_squeezed_axes(axes: Iterable[int], shape: tuple[int, ...]) -> None:
    """Raise `ShapeError` if an axis that `squeeze` removes is not of size 1."""
    for axis in axes:
        if shape[axis] != 1:
            raise ShapeError(
                with_location(
                    f"squeeze cannot remove axis {axis} of shape {shape}, because its size is "
                    f"{shape[axis]}; name axes of size 1, or use reshape"
                )
            )
