"""Named axes that collectives refer to while a function is mapped over them.

A named axis is one of a batch (`vmap`), or a manual mesh axis (`pmap`, `shard_map`). Collectives do
not distinguish them: a name represents axes of the IR, which are replaced when the batch is
vectorized or when the mesh of the program is known. An axis of size 1 represents no axes.
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
    """A named axis and the axes of the IR that it represents.

    `manual`: a mesh axis, not a batch axis. `checked`: an axis of `shard_map` with `check_vma`. A
    value that does not vary along such an axis counts as one value that its devices share.
    """

    name: str
    size: int
    axes: Axes
    manual: bool = False
    checked: bool = False


_axes: ContextVar[Mapping[str, Named]] = ContextVar("shardir_axes", default=MappingProxyType({}))


@contextmanager
def bound(name: str | None, size: int) -> Iterator[None]:
    """Bind `name` to a batch axis of `size` inside the block; without a name nothing changes."""
    if name is None:
        yield
        return
    with all_bound([Named(name, size, (Axis(name, 1, size),))]):
        yield


@contextmanager
def all_bound(named: Sequence[Named]) -> Iterator[None]:
    """Bind additional named axes inside the block."""
    token = _axes.set({**_axes.get(), **{axis.name: axis for axis in named}})
    try:
        yield
    finally:
        _axes.reset(token)


def known_axes() -> Mapping[str, Named]:
    """Return the bound axes by name."""
    return _axes.get()


def checked_axes() -> Axes:
    """Return the axes of the IR with `check_vma`, along which equal values are shared."""
    return tuple(axis for named in _axes.get().values() if named.checked for axis in named.axes)


def manual_axes_here() -> Axes:
    """Return the bound manual axes of the IR."""
    return tuple(axis for named in _axes.get().values() if named.manual for axis in named.axes)


def named_axes(names: object, what: str) -> tuple[Named, ...]:
    """Return the axes of one or several names, in order.

    Raises `AxisNameError` that mentions `what` for a name that is not bound.
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
                f"{what} is along {name!r}, which is not bound at this line (bound axes: "
                f"{there}); "
                + (close or "name one with axis_name= of vmap or pmap, or in the mesh of shard_map")
            )
        )
    twice = [name for i, name in enumerate(listed) if name in listed[:i]]
    if twice:
        raise AxisNameError(point(f"{what} is along {twice[0]!r} twice; name each axis once"))
    return tuple(known[name] for name in listed)


def size_of(named: Sequence[Named]) -> int:
    """Return the number of positions along the axes."""
    return prod(axis.size for axis in named)


def joined(named: Sequence[Named]) -> Axes:
    """Return the axes of the IR that the named axes represent, major to minor."""
    return tuple(axis for each in named for axis in each.axes)
