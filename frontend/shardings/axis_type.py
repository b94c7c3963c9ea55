"""Types of mesh axes, which select how shardings along them are determined."""

from collections.abc import Iterable, Sequence
from enum import Enum

from shardir.frontend.errors import MeshError


class AxisType(Enum):
    """The type of a mesh axis, as in JAX.

    `Auto`: the compiler determines shardings from annotations. `Explicit`: shardings are part of
    the types of traced arrays (`typeof`), and an operation whose result has no unambiguous sharding
    raises `ShardingTypeError`. `Manual`: the program determines shardings, inside of `shard_map`;
    a mesh with such axes can be neither entered nor used for the sharding of an array.
    """

    Auto = "Auto"
    """The compiler determines shardings from annotations."""
    Explicit = "Explicit"
    """Shardings are part of the types of traced arrays."""
    Manual = "Manual"
    """The program determines shardings, inside of `shard_map`."""

    def __repr__(self) -> str:
        return self.value


def check_axis_types(
    given: AxisType | Sequence[AxisType] | None, names: Sequence[str]
) -> tuple[AxisType, ...]:
    """Return one type for each axis; raises `MeshError` for other objects."""
    if given is None:
        return (AxisType.Auto,) * len(names)
    types = tuple(given) if isinstance(given, Iterable) else (given,) * len(names)
    if len(types) != len(names):
        raise MeshError(
            f"a Mesh has axes {tuple(names)} and axis_types {types}; give one type for each axis"
        )
    for name, kind in zip(names, types, strict=True):
        if not isinstance(kind, AxisType):
            raise MeshError(
                f"the axis {name!r} of a Mesh has the type {kind!r}; it must be AxisType.Auto or "
                "AxisType.Explicit"
            )
    return types
