"""Axes that collectives speak of by name, while a function is mapped over them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from shardir.errors import suggestion
from shardir.frontend.errors import AxisNameError
from shardir.frontend.locations import point
from shardir.placement import Axis

_axes: ContextVar[Mapping[str, int]] = ContextVar("shardir_axes", default=MappingProxyType({}))


@contextmanager
def bound(name: str | None, size: int) -> Iterator[None]:
    """Inside, `name` is an axis of `size`; without a name nothing changes."""
    if name is None:
        yield
        return
    token = _axes.set({**_axes.get(), name: size})
    try:
        yield
    finally:
        _axes.reset(token)


def axes_named(names: object, what: str) -> tuple[Axis, ...]:
    """The axes of one name or several, in order.

    Raises `AxisNameError`, mentioning `what`, for a name that nothing around the line has bound.
    """
    listed = tuple(names) if isinstance(names, (tuple, list)) else (names,)
    known = _axes.get()
    for name in listed:
        if isinstance(name, str) and name in known:
            continue
        there = ", ".join(map(repr, known)) or "none"
        close = suggestion(name, known) if isinstance(name, str) else ""
        raise AxisNameError(
            point(
                f"{what} is along {name!r}, and no axis around this line has that name (there: "
                f"{there}); {close or 'name one with axis_name= of vmap'}"
            )
        )
    return tuple(Axis(name, 1, known[name]) for name in listed)
