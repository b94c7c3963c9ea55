"""What may be asked of the axes of a mesh: who decides how values are cut along them."""

from collections.abc import Iterable, Sequence
from enum import Enum

from shardir.frontend.errors import MeshError


class AxisType(Enum):
    """Who decides how values are cut along an axis, as JAX tells it.

    `Auto`: the compiler, from annotations. `Explicit`: in JAX the types of values say it, and a
    program that leaves it open is refused; here such an axis is known as explicit, layouts that a
    program asks for (`reshard`, `out_sharding=`) are constraints, and the compiler decides the
    rest, as for `Auto`. `Manual`: the program does, inside of `shard_map`; a mesh is not made so.
    """

    Auto = "Auto"
    Explicit = "Explicit"
    Manual = "Manual"

    def __repr__(self) -> str:
        return self.value


def clean_axis_types(
    given: AxisType | Sequence[AxisType] | None, names: Sequence[str]
) -> tuple[AxisType, ...]:
    """One type for each axis; raises `MeshError` unless all are `Auto` or `Explicit`."""
    if given is None:
        return (AxisType.Auto,) * len(names)
    types = tuple(given) if isinstance(given, Iterable) else (given,) * len(names)
    if len(types) != len(names):
        raise MeshError(
            f"a Mesh has axes {tuple(names)} and axis_types {types}; give one type for each axis"
        )
    for name, kind in zip(names, types, strict=True):
        if kind is AxisType.Manual:
            raise MeshError(
                f"the axis {name!r} of a Mesh is Manual, which an axis is inside of shard_map "
                "only; leave axis_types out, and map the function by shard_map"
            )
        if not isinstance(kind, AxisType):
            raise MeshError(
                f"the axis {name!r} of a Mesh has the type {kind!r}; it is AxisType.Auto or "
                "AxisType.Explicit"
            )
    return types
