"""Sharding constraints inside of a function that is mapped over a batch.

The compiler shards the batch dimension, or the mesh axes that the user names for it do. A
constraint in a traced program is a token (see sharding_tokens.py); with a sharded batch dimension
it becomes a token of another public sharding.
"""

from collections.abc import Callable, Sequence

from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec, SpecEntry
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.sharding_tokens import sharding_token
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.ir.sharding import Axes, Sharding
from shardir.passes.batching.transform import add_batch_dimension

AxisNames = str | Sequence[str] | None


def batch_sharding_map(program: TracedProgram, names: AxisNames) -> Callable[[Sharding], Sharding]:
    """Return a function from the sharding of one value of a traced program to that of a batch of
    them."""
    if names is None:
        return add_batch_dimension
    lead: SpecEntry = names if isinstance(names, str) else tuple(names)

    def place(sharding: Sharding) -> Sharding:
        requested, _ = list(program.requested_shardings)[int(sharding.mesh[1:])]
        if not isinstance(requested, NamedSharding):
            raise ShardingError(
                with_location(
                    f"spmd_axis_name={names!r} names axes of a mesh, and a constraint inside "
                    f"requests {requested}, which has none; use a NamedSharding"
                )
            )
        entries: list[SpecEntry] = [lead]
        for dim in sharding.dims:
            if dim.open:
                entries.append(UNCONSTRAINED)
            elif not dim.axes:
                entries.append(None)
            else:
                entries.append(requested.spec.axes(int(dim.axes[0].name)))
        wider = NamedSharding(requested.mesh, PartitionSpec(*entries))
        return sharding_token(program, wider, len(entries))

    return place


def batch_axes_filter(program: TracedProgram, names: AxisNames) -> Callable[[Axes], Axes] | None:
    """Return a function that selects the manual axes, tokens of a program, with these names."""
    if names is None:
        return None
    axis_names = (names,) if isinstance(names, str) else tuple(names)

    def front(axes: Axes) -> Axes:
        called = {}
        for axis in axes:
            number, _, dim = axis.name[1:].partition(".")
            requested, _ = list(program.requested_shardings)[int(number)]
            if isinstance(requested, NamedSharding):
                called[requested.mesh.axis_names[int(dim)]] = axis
        return tuple(called[name] for name in axis_names if name in called)

    return front
