"""Process levels: which sub-axes are inside a process and which span processes.

The devices of each process form a block of the mesh. Along an axis of size n with k blocks, the
major sub-axis of size k is *far* (between processes) and the remaining sub-axis is *near* (inside a
process).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby

from shardir.errors import MergeError, PipelineError
from shardir.ir.device_groups import device_positions
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.ir.sub_axes import append_axis
from shardir.text.number_text import parse_natural_number
from shardir.text.printer import format_axis


@dataclass(frozen=True)
class ProcessLevels:
    """A mesh split into blocks: `block_counts` is the number of blocks along each axis that has
    several.

    `position_of_process` is the block of one process, as an index along each of these axes, if
    known.
    """

    mesh: Mesh
    block_counts: Mapping[str, int]
    position_of_process: Mapping[str, int] | None = None

    @classmethod
    def parse(cls, mesh: Mesh, text: str, at: str = "") -> "ProcessLevels":
        """Parse `data:2/model:4`, and a block position such as `data:1/model:0`.

        Raises `PipelineError` for text that does not divide the mesh into blocks.
        """
        across: dict[str, int] = {}
        seen: set[str] = set()
        for part in filter(None, text.split("/")):
            name, _, count = part.partition(":")
            size = mesh.sizes.get(name)
            blocks = parse_natural_number(count)
            if size is None or not blocks or size % blocks or name in seen:
                axes_text = ", ".join(f"{axis}:{n}" for axis, n in mesh.axes)
                raise PipelineError(
                    f"{part!r} is not a valid split of a mesh axis; write AXIS:BLOCKS, where the "
                    "blocks divide the axis, once for each axis, such as data:2/model:1; the axes "
                    f"are {axes_text or 'none'}"
                )
            seen.add(name)
            if blocks > 1:
                across[name] = blocks
        levels = cls(mesh, across)
        return replace(levels, position_of_process=levels.parse_position(at)) if at else levels

    def parse_position(self, text: str) -> dict[str, int]:
        """Return the block index along each axis of `data:1/model:0`; the default is 0."""
        result = dict.fromkeys(self.block_counts, 0)
        for part in filter(None, text.split("/")):
            name, _, at = part.partition(":")
            number = parse_natural_number(at)
            is_valid = name in self.mesh.sizes and number is not None
            if number is None or not is_valid or number >= self.block_counts.get(name, 1):
                raise PipelineError(
                    f"{part!r} is not a block position; write AXIS:NUMBER, counted from 0, such as "
                    f"data:1; the blocks are {self}"
                )
            if name in result:
                result[name] = number
        return result

    def position(self, axes: Axes) -> int:
        """Return the position of this process's block along far axes."""
        assert self.position_of_process is not None
        at = 0
        for axis in axes:
            below = self.block_counts[axis.name] // axis.next
            at = at * axis.size + self.position_of_process[axis.name] // below % axis.size
        return at

    def local_shard_indices(self, sharding: Sharding) -> list[tuple[int, ...]]:
        """Return the index of each device's shard inside its process, one number per dimension."""
        columns = [
            device_positions(self.mesh, self.near_parts(dim.axes)).tolist() for dim in sharding.dims
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * self.mesh.size

    def full_axis(self, name: str) -> Axis:
        """Return the full axis."""
        return Axis(name, 1, self.mesh.sizes[name])

    def __str__(self) -> str:
        return "/".join(f"{name}:{count}" for name, count in self.block_counts.items())

    @property
    def processes(self) -> Mesh:
        """The mesh of blocks, each of which is one process."""
        axes = tuple(
            (name, self.block_counts[name])
            for name, _ in self.mesh.axes
            if name in self.block_counts
        )
        return Mesh(self.mesh.name, axes, None if axes else (0,))

    def is_far(self, axis: Axis) -> bool:
        """Return whether the axis only spans processes.

        A far axis of the device mesh has the same form in the process mesh.
        """
        return axis.size > 1 and axis.next <= self.block_counts.get(axis.name, 1)

    def is_near(self, axis: Axis) -> bool:
        """Return whether the axis is inside a process."""
        return axis.size == 1 or axis.pre >= self.block_counts.get(axis.name, 1)

    def split(self, axes: Axes) -> Axes:
        """Return the axes split into near and far parts.

        Raises `MergeError` if no reshape of an axis contains both its sub-axis and the blocks.
        """
        result: list[Axis] = []
        for axis in axes:
            if self.is_far(axis) or self.is_near(axis):
                result.append(axis)
                continue
            count = self.block_counts[axis.name]
            if count % axis.pre or axis.next % count:
                raise MergeError(
                    f"{format_axis(axis, self.mesh)} is neither inside of processes nor between "
                    "them"
                )
            result.append(Axis(axis.name, axis.pre, count // axis.pre))
            result.append(Axis(axis.name, count, axis.next // count))
        return tuple(result)

    def group_by_level(self, axes: Axes) -> list[Axes]:
        """Return the parts of the axes, grouped into consecutive parts of one level."""
        parts = (axis for axis in self.split(axes) if axis.size > 1)
        return [merge_consecutive(run) for _, run in groupby(parts, self.is_far)]

    def far_parts(self, axes: Axes) -> Axes:
        """Return the parts between processes, in the order of the axes."""
        return merge_consecutive(axis for axis in self.split(axes) if self.is_far(axis))

    def near_parts(self, axes: Axes) -> Axes:
        """Return the parts inside processes, in the order of the axes."""
        return tuple(axis for axis in self.split(axes) if not self.is_far(axis) and axis.size > 1)


def merge_consecutive(axes: Iterable[Axis]) -> Axes:
    """Return the axes with consecutive parts merged."""
    return reduce(append_axis, axes, ())
