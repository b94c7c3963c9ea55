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

from shardir.errors import suggest_name
from shardir.frontend.errors import AxisNameError
from shardir.frontend.source_locations import with_location
from shardir.ir.sharding import Axes, Axis


@dataclass(frozen=True, slots=True)
class NamedAxis:
    """A named axis and the axes of the IR that it represents.

    `manual`: a mesh axis, not a batch axis. `checked`: an axis of `shard_map` with `check_vma`. A
    value that does not vary along such an axis counts as one value that its devices share.
    """

    name: str
    size: int
    axes: Axes
    manual: bool = False
    checked: bool = False


_bound_axes: ContextVar[Mapping[str, NamedAxis]] = ContextVar(
    "shardir_axes", default=MappingProxyType({})
)


@contextmanager
def bind_batch_axis(name: str | None, size: int) -> Iterator[None]:
    """Bind `name` to a batch axis of `size` inside the block; without a name nothing changes."""
    if name is None:
        yield
        return
    with bind_axes([NamedAxis(name, size, (Axis(name, 1, size),))]):
        yield


@contextmanager
def bind_axes(named: Sequence[NamedAxis]) -> Iterator[None]:
    """Bind additional named axes inside the block."""
    token = _bound_axes.set({**_bound_axes.get(), **{axis.name: axis for axis in named}})
    try:
        yield
    finally:
        _bound_axes.reset(token)


@contextmanager
def without_bound_axes() -> Iterator[None]:
    """Bind no named axis inside the block, which traces a program of its own."""
    token = _bound_axes.set(MappingProxyType({}))
    try:
        yield
    finally:
        _bound_axes.reset(token)


def bound_axes() -> Mapping[str, NamedAxis]:
    """Return the bound axes by name."""
    return _bound_axes.get()


def checked_axes() -> Axes:
    """Return the axes of the IR with `check_vma`, along which equal values are shared."""
    return tuple(
        axis for named in _bound_axes.get().values() if named.checked for axis in named.axes
    )


def bound_manual_axes() -> Axes:
    """Return the bound manual axes of the IR."""
    return tuple(
        axis for named in _bound_axes.get().values() if named.manual for axis in named.axes
    )


def resolve_axis_names(names: object, what: str) -> tuple[NamedAxis, ...]:
    """Return the axes of one or several names, in order.

    Raises `AxisNameError` that mentions `what` for a name that is not bound.
    """
    listed = tuple(names) if isinstance(names, (tuple, list)) else (names,)
    known = _bound_axes.get()
    for name in listed:
        if isinstance(name, str) and name in known:
            continue
        there = ", ".join(map(repr, known)) or "none"
        close = suggest_name(name, known) if isinstance(name, str) else ""
        raise AxisNameError(
            with_location(
                f"{what} is along {name!r}, which is not bound at this line (bound axes: "
                f"{there}); "
                + (close or "name one with axis_name= of vmap or pmap, or in the mesh of shard_map")
            )
        )
    twice = [name for i, name in enumerate(listed) if name in listed[:i]]
    if twice:
        raise AxisNameError(
            with_location(f"{what} is along {twice[0]!r} twice; name each axis once")
        )
    return tuple(known[name] for name in listed)


def axes_size(named: Sequence[NamedAxis]) -> int:
    """Return the number of positions along the axes."""
    return prod(axis.size for axis in named)


def ir_axes(named: Sequence[NamedAxis]) -> Axes:
    """Return the axes of the IR that the named axes represent, major to minor."""
    return tuple(axis for each in named for axis in each.axes)
