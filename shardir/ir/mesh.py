"""Device meshes: devices arranged along named axes.

A mesh has a name, ordered axes (the first is major), and the ids of its devices in row-major order
of their coordinates. The devices need not exist on this machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from shardir.display.representation import abbreviate_items


def axis_size_fault(name: str, size: int) -> str | None:
    """Return why a mesh axis cannot have this size; `None` if it can."""
    return None if size >= 1 else f"axis {name!r} has size {size}; a mesh axis has at least size 1"


@dataclass(frozen=True)
class Mesh:
    """A mesh. `axes` are (name, size) pairs, major to minor.

    `device_ids` is `None` for the iota order 0, 1, 2, ... . A mesh without axes and with one device
    id places whole tensors on that device (Shardy's maximal mesh).
    """

    name: str
    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        devices = "" if self.device_ids is None else f", {abbreviate_items(self.device_ids)}"
        return f"Mesh({self.name!r}, {self.axes!r}{devices})"

    @cached_property
    def sizes(self) -> dict[str, int]:
        return dict(self.axes)

    @cached_property
    def size(self) -> int:
        """The number of devices."""
        return prod(size for _, size in self.axes)

    @property
    def is_maximal(self) -> bool:
        return not self.axes and self.device_ids is not None

    def coordinates(self) -> Iterator[dict[str, int]]:
        """Yield the coordinates of every device in row-major order (the last axis is fastest)."""
        for point in product(*(range(size) for _, size in self.axes)):
            yield dict(zip(self.sizes, point, strict=True))

    @cached_property
    def strides(self) -> dict[str, int]:
        """The stride of each axis in the row-major order of devices."""
        strides, stride = {}, self.size
        for name, size in self.axes:
            stride //= size
            strides[name] = stride
        return strides
