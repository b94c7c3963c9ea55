"""Axes that collectives speak of by name, while a function is mapped over them.

An axis is one of a batch (`vmap`) or one of a mesh along which every device runs the function on
its own (`pmap`, `shard_map`). Collectives do not tell the two apart: each name stands for axes of
the IR, and what becomes of those is settled when the batch is vectorized, or when the program's
mesh is known. An axis of one position stands for none.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from shardir.errors import suggestion
from shardir.frontend.errors import AxisNameError
from shardir.frontend.locations import point
from shardir.placement import Axes, Axis


@dataclass(frozen=True, slots=True)
class Named:
    """An axis of a name, and the axes of the IR that it is.

    `manual`: of a mesh, not of a batch. `checked`: what is the same along it counts as one value
    that its devices share (`shard_map` with `check_vma`).
    """

    name: str
    size: int
    axes: Axes
    manual: bool = False
    checked: bool = False


_axes: ContextVar[Mapping[str, Named]] = ContextVar("shardir_axes", default=MappingProxyType({}))


@contextmanager
def bound(name: str | None, size: int) -> Iterator[None]:
    """Inside, `name` is an axis of a batch of `size`; without a name nothing changes."""
    if name is None:
        yield
        return
    with all_bound([Named(name, size, (Axis(name, 1, size),))]):
        yield


@contextmanager
def all_bound(named: Sequence[Named]) -> Iterator[None]:
    """Inside, these axes are there as well."""
    token = _axes.set({**_axes.get(), **{axis.name: axis for axis in named}})
    try:
        yield
    finally:
        _axes.reset(token)


def known_axes() -> Mapping[str, Named]:
    """The axes around, by name."""
    return _axes.get()


def checked_axes() -> Axes:
    """The axes of the IR along which equal values are shared ones."""
    return tuple(axis for named in _axes.get().values() if named.checked for axis in named.axes)


def manual_axes_here() -> Axes:
    """The manual axes around, of the IR."""
    return tuple(axis for named in _axes.get().values() if named.manual for axis in named.axes)


def named_axes(names: object, what: str) -> tuple[Named, ...]:
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
                f"{there}); "
                + (close or "name one with axis_name= of vmap or pmap, or in the mesh of shard_map")
            )
        )
    twice = [name for i, name in enumerate(listed) if name in listed[:i]]
    if twice:
        raise AxisNameError(point(f"{what} is along {twice[0]!r} twice; name each axis once"))
    return tuple(known[name] for name in listed)


def size_of(named: Sequence[Named]) -> int:
    """How many positions there are along the axes."""
    return prod(axis.size for axis in named)


def joined(named: Sequence[Named]) -> Axes:
    """The axes of the IR that the axes are, major to minor."""
    return tuple(axis for each in named for axis in each.axes)
