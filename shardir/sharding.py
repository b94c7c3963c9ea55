"""Public names for meshes, shardings and partition specs (compare `jax.sharding`)."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.dispatch.axis_modes": ("auto_axes", "explicit_axes"),
    "shardir.frontend.shardings.axis_type": ("AxisType",),
    "shardir.frontend.shardings.manual_axes": ("get_abstract_mesh",),
    "shardir.frontend.shardings.manual_axis_type": ("ManualAxisType",),
    "shardir.frontend.shardings.mesh": ("AbstractMesh", "Mesh"),
    "shardir.frontend.shardings.partition_spec": ("PartitionSpec",),
    "shardir.frontend.shardings.positional_sharding": ("PositionalSharding",),
    "shardir.frontend.shardings.resharding": ("reshard",),
    "shardir.frontend.shardings.set_mesh": (
        "get_mesh",
        "set_mesh",
        "use_abstract_mesh",
        "use_mesh",
    ),
    "shardir.frontend.shardings.sharding": (
        "NamedSharding",
        "Sharding",
        "SingleDeviceSharding",
        "make_single_device_sharding",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.dispatch.axis_modes import (
        auto_axes as auto_axes,
        explicit_axes as explicit_axes,
    )
    from shardir.frontend.shardings.axis_type import AxisType as AxisType
    from shardir.frontend.shardings.manual_axes import get_abstract_mesh as get_abstract_mesh
    from shardir.frontend.shardings.manual_axis_type import ManualAxisType as ManualAxisType
    from shardir.frontend.shardings.mesh import AbstractMesh as AbstractMesh, Mesh as Mesh
    from shardir.frontend.shardings.partition_spec import PartitionSpec as PartitionSpec
    from shardir.frontend.shardings.positional_sharding import (
        PositionalSharding as PositionalSharding,
    )
    from shardir.frontend.shardings.resharding import reshard as reshard
    from shardir.frontend.shardings.set_mesh import (
        get_mesh as get_mesh,
        set_mesh as set_mesh,
        use_abstract_mesh as use_abstract_mesh,
        use_mesh as use_mesh,
    )
    from shardir.frontend.shardings.sharding import (
        NamedSharding as NamedSharding,
        Sharding as Sharding,
        SingleDeviceSharding as SingleDeviceSharding,
        make_single_device_sharding as make_single_device_sharding,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
