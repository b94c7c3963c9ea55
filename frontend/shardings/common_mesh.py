"""Expression of the shardings of one program on one mesh, and of results in the user's shardings.

A program runs on one ordered list of devices, though its shardings may come from many meshes over
that list. Their sub-axes (sub_axes.py) become sub-axes of one common mesh: the mesh of the first
NamedSharding, whose names the user chose, or otherwise axes d0, d1, ... that are split wherever a
sharding requires it. An axis of size n is viewed as [pre, size, n / (pre * size)], and `Axis(name,
pre, size)` denotes the part in the middle; the full axis is `Axis(name, 1, n)`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.errors import IncompatibleDevicesError, ShardingError
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec, Unconstrained
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from shardir.frontend.shardings.sub_axes import SubAxes, SubAxis, row_major_sub_axes
from shardir.ir.sharding import OPEN_DIM, Axes, Axis, DimSharding, Sharding as ProgramSharding

MeshAxes = tuple[tuple[str, int], ...]
MESH_NAME = "mesh"
"""The name of the mesh of a lowered program in the IR."""


def resolve_abstract_meshes(
    requested: Iterable[tuple[Sharding, int]], met: Iterable[Sharding]
) -> tuple[tuple[Sharding, int], ...]:
    """Return the shardings `requested` with the meshes without devices replaced by meshes with
    devices.

    The devices are those of the first mesh with the same axes among the shardings in
    `met`.
    """
    meshes: dict[Mesh, Mesh] = {}
    for sharding in met:
        if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, AbstractMesh):
            meshes.setdefault(sharding.mesh.abstract_mesh, sharding.mesh)
    return tuple((_replace_mesh(sharding, meshes), rank) for sharding, rank in requested)


def _replace_mesh(sharding: Sharding, meshes: Mapping[Mesh, Mesh]) -> Sharding:
    if not isinstance(sharding, NamedSharding) or sharding.mesh not in meshes:
        return sharding
    return NamedSharding(meshes[sharding.mesh], sharding.spec)


@locate_errors
def check_same_devices(placed: Sequence[tuple[str, Sharding]]) -> tuple[Device, ...]:
    """Return the common ordered device list of `placed`, pairs of a name and a sharding.

    Names are descriptions such as `argument x of f`. Raises `IncompatibleDevicesError` that names
    the first two shardings that differ, and their devices.
    """
    (first, reference), *others = placed
    for name, sharding in others:
        if sharding.device_assignment != reference.device_assignment:
            same = sharding.device_set == reference.device_set
            raise IncompatibleDevicesError(
                f"devices of all arrays of a computation should be the same"
                f"{', in the same order' if same else ''}: {first} has "
                f"{describe_devices(reference)}, and {name} has {describe_devices(sharding)}; "
                "move one to the devices of the other with device_put"
            )
    return reference.device_assignment


def describe_devices(sharding: Sharding) -> str:
    """Return the ids of the devices in order, and their platform, as text."""
    devices = sharding.device_assignment
    return f"device ids {[d.id for d in devices]} on platform {devices[0].platform.upper()}"


def common_axes(shardings: Sequence[Sharding]) -> MeshAxes:
    """Return axes, major first, whose sub-axes express every dimension of `shardings`.

    All shardings have the same devices (`check_same_devices`). Raises `ShardingError` when there is
    no such mesh. `express_sub_axis` checks that sub-axes nest in the mesh of a NamedSharding.
    """
    for sharding in shardings:
        if isinstance(sharding, NamedSharding):
            return tuple(sharding.mesh.shape.items())
    devices = shardings[0].num_devices
    bounds = {1, devices}
    for sharding in shardings:
        for digits in sharding.resolved_sub_axes(sharding.natural_rank):
            for digit in digits:
                bounds |= {digit.stride, digit.span}
    groups = sorted(bounds, reverse=True)
    for major, minor in pairwise(groups):
        if major % minor:
            raise ShardingError(
                f"the shardings of one program divide its {devices} devices into groups of {major} "
                f"and of {minor}, which do not nest: "
                f"{', '.join(map(str, dict.fromkeys(shardings)))}; "
                "use shapes whose sizes divide each other"
            )
    return tuple((f"d{i}", major // minor) for i, (major, minor) in enumerate(pairwise(groups)))


def express_sub_axis(digit: SubAxis, axes: MeshAxes) -> Axes:
    """Return a sub-axis as parts of `axes`, major first; raises `ShardingError` if it does not
    nest."""
    parts = []
    names = [name for name, _ in axes]
    for name, whole in zip(names, row_major_sub_axes([size for _, size in axes]), strict=True):
        low, high = max(digit.stride, whole.stride), min(digit.span, whole.span)
        if low >= high:
            continue
        if whole.span % high or high % low or low % whole.stride:
            text = ", ".join(f"{each}={size}" for each, size in axes)
            raise ShardingError(
                f"splitting groups of {digit.span} devices into {digit.size} does not nest in the "
                f"mesh [{text}]; use sizes that divide those of the mesh, or one mesh throughout"
            )
        parts.append(Axis(name, whole.span // high, high // low))
    return tuple(parts)


def express_dimension(digits: SubAxes, axes: MeshAxes) -> Axes:
    """Return the sub-axes of a dimension as parts of `axes`, with adjacent parts of one axis
    joined."""
    joined: list[Axis] = []
    for digit in digits:
        for part in express_sub_axis(digit, axes):
            if joined and joined[-1].name == part.name and joined[-1].next == part.pre:
                part = Axis(part.name, joined[-1].pre, joined.pop().size * part.size)
            joined.append(part)
    return tuple(joined)


def express_sharding(
    sharding: Sharding, rank: int, axes: MeshAxes
) -> tuple[Axes | Unconstrained, ...]:
    """Return each dimension of `sharding`, for a value of `rank`, as parts of `axes`."""
    return tuple(
        sub_axes if sub_axes is UNCONSTRAINED else express_dimension(sub_axes, axes)
        for sub_axes in sharding.sub_axes(rank)
    )


def express_on_axes(sharding: Sharding, rank: int, axes: MeshAxes) -> ProgramSharding:
    """Return `sharding`, for a value of `rank`, as a sharding of the IR over `axes`."""
    unreduced = express_dimension(sharding.unreduced_sub_axes(), axes)
    return ProgramSharding(
        MESH_NAME,
        tuple(
            OPEN_DIM if sub_axes is UNCONSTRAINED else DimSharding(sub_axes, open=False)
            for sub_axes in express_sharding(sharding, rank, axes)
        ),
        unreduced=unreduced,
    )


def express_request(
    sharding: Sharding, rank: int, axes: MeshAxes
) -> tuple[Axes | Unconstrained, ...]:
    """Return each dimension of `sharding`, its unreduced and its replicated axes, as parts of
    `axes`."""
    dims = express_sharding(sharding, rank, axes)
    if not isinstance(sharding, NamedSharding):
        return (*dims, (), ())
    return (
        *dims,
        express_dimension(sharding.unreduced_sub_axes(), axes),
        express_dimension(sharding.replicated_sub_axes(), axes),
    )


def to_sub_axis(part: Axis, axes: MeshAxes) -> SubAxis:
    """Return the sub-axis of a part of an axis, the inverse of `express_sub_axis`."""
    sizes = [size for _, size in axes]
    whole = row_major_sub_axes(sizes)[[name for name, _ in axes].index(part.name)]
    return SubAxis(whole.span // part.next, part.size)


def to_user_sharding(
    dims: Sequence[Axes], axes: MeshAxes, devices: tuple[Device, ...], seen: Sequence[Sharding]
) -> Sharding:
    """Return the public sharding of a value whose dimensions are sharded along `dims`, parts of
    `axes`.

    `seen` are the shardings in the user's program. The result is a NamedSharding on the first of
    their meshes that needs no split axes; a PositionalSharding (or, on one device, a
    SingleDeviceSharding) when the user named no mesh; and otherwise a NamedSharding on the user's
    first mesh with axes split where the value requires it.
    """
    dim_axes = [tuple(to_sub_axis(part, axes) for part in parts) for parts in dims]
    meshes = [
        sharding.mesh
        for sharding in dict.fromkeys(seen)
        if isinstance(sharding, NamedSharding) and sharding.device_assignment == devices
    ]
    for mesh in dict.fromkeys(meshes):
        if (spec := express_spec(dim_axes, mesh)) is not None:
            return NamedSharding(mesh, spec)
    if meshes:
        return _spec_on_split_mesh(dim_axes, meshes[0])
    if len(devices) == 1 and not any(isinstance(each, PositionalSharding) for each in seen):
        return SingleDeviceSharding(devices[0])
    return PositionalSharding.from_sub_axes(devices, dim_axes)


def spec_on_mesh(dims: Sequence[Axes], axes: MeshAxes, mesh: Mesh) -> PartitionSpec:
    """Return the spec on `mesh` of dimensions that are sharded along parts of `axes`.

    Dimensions that need a part of an axis of `mesh` are unsharded.
    """
    entries = []
    for parts in dims:
        found = express_spec([tuple(to_sub_axis(part, axes) for part in parts)], mesh)
        entries.append(() if found is None else tuple(found.mentioned_axes()))
    return _make_spec(entries)


def express_spec(dim_axes: Sequence[SubAxes], mesh: Mesh) -> PartitionSpec | None:
    """Return the spec of the dimensions `dim_axes` on `mesh`, or `None` if they need sub-axes."""
    axes = tuple(mesh.shape.items())
    entries: list[tuple[str, ...]] = []
    for digits in dim_axes:
        try:
            parts = express_dimension(digits, axes)
        except ShardingError:
            return None
        if any(part.size != mesh.shape[part.name] for part in parts):
            return None
        entries.append(tuple(part.name for part in parts))
    return _make_spec(entries)


def _spec_on_split_mesh(dim_axes: Sequence[SubAxes], mesh: Mesh) -> NamedSharding:
    """Return a NamedSharding on `mesh` with the axis x split into x.0, x.1, ... where `dim_axes`
    require it."""
    axes = tuple(mesh.shape.items())
    expressed = [express_dimension(digits, axes) for digits in dim_axes]
    names: list[str] = []
    sizes: list[int] = []
    pieces: dict[str, list[tuple[int, str]]] = {}
    for name, size in axes:
        ends = {1, size}
        for part in (part for parts in expressed for part in parts if part.name == name):
            ends |= {part.pre, part.next}
        bounds = list(pairwise(sorted(ends))) or [(1, 1)]
        pieces[name] = []
        for i, (pre, after) in enumerate(bounds):
            if after % pre:
                raise ShardingError(
                    f"one value is sharded over the axis {name!r} of size {size} in groups of "
                    f"{pre} and of {after}, which do not nest; shard it over one of them"
                )
            piece = name if len(bounds) == 1 else f"{name}.{i}"
            names.append(piece)
            sizes.append(after // pre)
            pieces[name].append((pre, piece))
    spec = _make_spec(
        tuple(
            piece
            for part in parts
            for pre, piece in pieces[part.name]
            if part.pre <= pre < part.next
        )
        for parts in expressed
    )
    return NamedSharding(Mesh(mesh.devices.reshape(sizes), names), spec)


def _make_spec(entries: Iterable[tuple[str, ...]]) -> PartitionSpec:
    """Return a spec without trailing empty entries."""
    kept = list(entries)
    while kept and not kept[-1]:
        kept.pop()
    return PartitionSpec(*kept)
