"""The numbers of devices that the attributes of a module state, and their checks.

JAX states `mhlo.num_partitions`, the number of devices over which the module is partitioned, and
`mhlo.num_replicas`, the number of copies of the module, each with its own arguments.
"""

from collections.abc import Iterable

from lark import Token

from shardir.ir.mesh import Mesh
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.types import TypeParser

_REPLICAS = "mhlo.num_replicas"
_PARTITIONS = "mhlo.num_partitions"


class DeviceCounts:
    """The numbers of partitions of modules, with the attributes that state them."""

    def __init__(self, types: TypeParser) -> None:
        self.types = types
        self._partitions: list[tuple[int, Token]] = []

    def read(self, attributes: Iterable[records.AttributeRecord]) -> None:
        """Read the attributes of a module; raise `ParseError` for a program with replicas."""
        for entry in attributes:
            key = self.types.string(entry.key)
            if key not in (_REPLICAS, _PARTITIONS):
                continue
            count = self.types.integer(entry.value)
            if count < 1:
                raise self.types.source.fail(f"{key} is at least 1", entry.key)
            if key == _PARTITIONS:
                self._partitions.append((count, entry.key))
            elif count > 1:
                raise self.types.source.fail(
                    f"each of {count} replicas runs this program on its own arguments, and the "
                    "reader reads programs of global arrays; print the program before partition, "
                    "or trace it with jit and shardings instead of replicas",
                    entry.key,
                )

    def check(self, meshes: Iterable[Mesh]) -> None:
        """Raise `ParseError` unless the meshes have as many devices as there are partitions."""
        for mesh in meshes:
            for count, at in self._partitions:
                if mesh.axes and mesh.size != count:
                    raise self.types.source.fail(
                        f"the mesh @{mesh.name} has {mesh.size} devices, and the module {count} "
                        f"partitions; state {_PARTITIONS} = {mesh.size}, or change the mesh",
                        at,
                    )
                ids = mesh.device_ids or ()
                if mesh.is_maximal and max(ids, default=0) >= count:
                    raise self.types.source.fail(
                        f"the mesh @{mesh.name} is the device {ids[0]}, and the module has {count} "
                        f"partitions; state a larger {_PARTITIONS}, or change the mesh",
                        at,
                    )
