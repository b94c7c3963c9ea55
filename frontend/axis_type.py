"""What may be asked of the axes of a mesh; here, always the same: that the compiler decides."""

from collections.abc import Iterable, Sequence
from enum import Enum

from shardir.frontend.errors import MeshError


class AxisType(Enum):
    """Who decides how values are cut along an axis, as JAX tells it.

    `Auto`: the compiler, from annotations, which is how every mesh works here. `Explicit` (the
    types of values say it) and `Manual` (the program does, as inside of `shard_map`) are known by
    name, so that what asks for them is told.
    """

    Auto = "Auto"
    Explicit = "Explicit"
    Manual = "Manual"

    def __repr__(self) -> str:
        return self.value


def clean_axis_types(
    given: AxisType | Sequence[AxisType] | None, names: Sequence[str]
) -> tuple[AxisType, ...]:
    """One type for each axis; raises `MeshError` unless all are `Auto`."""
    if given is None:
        return (AxisType.Auto,) * len(names)
    types = tuple(given) if isinstance(given, Iterable) else (given,) * len(names)
    if len(types) != len(names):
        raise MeshError(
            f"a Mesh has axes {tuple(names)} and axis_types {types}; give one type for each axis"
        )
    for name, kind in zip(names, types, strict=True):
        if kind is not AxisType.Auto:
            raise MeshError(
                f"the axis {name!r} of a Mesh is {kind!r}, and shardings are no part of types "
                "here; leave axis_types out, and use with_sharding_constraint or shard_map"
            )
    return types
