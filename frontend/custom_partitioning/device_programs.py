"""Tracing of the program that each device runs for a call of a partitioned function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.errors import IndivisibleError, ShardingError
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.program_mesh import ProgramMesh
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.sharding_tokens import replace_shardings
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.function_tracing import trace_program
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.manual.manual_region import DimensionAxisNames, ManualRegion
from shardir.ir.builder import substitute
from shardir.ir.module import Block
from shardir.ir.types import TensorType
from shardir.ops.control_flow.custom_partitioning import DeviceProgram
from shardir.ops.control_flow.manual_computation import manual_computation
from shardir.passes.simplify.inline import inline_regions


@dataclass(frozen=True)
class PartitionedForm:
    """The return value of a partition function, with flat arguments and results.

    `lower` computes the shards of the results from those of the operands. `batch_axes` are the mesh
    axes that shard dimensions which `vmap` added.
    """

    mesh: Mesh
    lower: Callable[..., Sequence[Tracer]]
    operands: tuple[NamedSharding, ...]
    results: tuple[NamedSharding, ...]
    batch_axes: frozenset[str] = frozenset()


def trace_device_program(
    form: PartitionedForm,
    what: str,
    operands: Sequence[TensorType],
    results: Sequence[TensorType],
    program_mesh: ProgramMesh,
) -> DeviceProgram:
    """Return the program of a device; `what` names the partition function in errors.

    Raises `ShardingError` if the shards of the results have other types than those that
    the shardings state, and `IndivisibleError` for shardings that do not divide.
    """
    region = ManualRegion(form.mesh, form.mesh.axis_names, what)
    for word, types, shardings in (
        ("argument", operands, form.operands),
        ("result", results, form.results),
    ):
        for i, (type, sharding) in enumerate(zip(types, shardings, strict=True)):
            _check_divides(f"{what}: the sharding of {word} {i}", sharding, type)
    ins = [_dimension_axes(s, t) for s, t in zip(form.operands, operands, strict=True)]
    outs = [_dimension_axes(s, t) for s, t in zip(form.results, results, strict=True)]
    labels = [f"arg{i}" for i in range(len(operands))]

    def check_results(made: Sequence[Tracer], _: object) -> list[DimensionAxisNames]:
        expected = [
            region.shard_type(type, dim_axes) for type, dim_axes in zip(results, outs, strict=True)
        ]
        for i, (value, type) in enumerate(zip(made, expected, strict=True)):
            if value.value.type != type:
                raise ShardingError(
                    with_location(
                        f"the function that {what} returned gives {value.value.type} for result "
                        f"{i} on each device, and a shard of {results[i]} sharded by "
                        f"{form.results[i].spec} is {type}; return a shard, or another sharding "
                        "of the result"
                    )
                )
        return outs

    def call(tracers: list[Tracer]) -> list[Tracer]:
        with form.mesh:  # The mesh of specs inside.
            return region.trace_region(form.lower, tracers, ins, labels, check_results)

    params = [(label, AbstractValue(type)) for label, type in zip(labels, operands, strict=True)]
    traced = trace_program(call, params, what)
    if traced.captured:
        raise ShardingError(
            with_location(
                f"the function that {what} returned refers to an array of type "
                f"{traced.captured[0].abstract.type}; refer to a NumPy array, or pass the array "
                "to the partitioned function as an argument"
            )
        )
    requested = [program_mesh.resolve(*each) for each in traced.requested_shardings]
    body = replace_shardings(inline_regions(traced.function).body, lambda _: None, requested)
    return DeviceProgram(
        _local_block(body),
        tuple(program_mesh.to_ir(s, t.rank) for s, t in zip(form.operands, operands, strict=True)),
        tuple(program_mesh.to_ir(s, t.rank) for s, t in zip(form.results, results, strict=True)),
    )


def _local_block(body: Block) -> Block:
    """Return the program of a device from a body that consists of one manual computation and the
    constants that it refers to."""
    manual = next(op for op in body.ops if op.spec is manual_computation)
    constants = [op for op in body.ops if op is not manual]
    (inner,) = manual.blocks
    count = len(body.params)
    outside = dict(zip(inner.params[count:], manual.operands[count:], strict=True))
    inner = substitute(inner, outside)
    return Block(inner.params[:count], (*constants, *inner.ops), inner.returns)


def _check_divides(word: str, sharding: NamedSharding, type: TensorType) -> None:
    try:
        sharding.check_divides(type.shape, "or replicate it")
    except IndivisibleError as error:
        raise IndivisibleError(with_location(f"{word}: {error}")) from None


def _dimension_axes(sharding: NamedSharding, type: TensorType) -> DimensionAxisNames:
    axes = (sharding.spec.axes(dim) for dim in range(type.rank))
    return tuple(() if each is UNCONSTRAINED else each for each in axes)


def communicates_along(program: DeviceProgram, axis: str, program_mesh: ProgramMesh) -> bool:
    """Return whether the program of a device depends on its position along an axis of the user's
    mesh, or communicates along it."""
    parts, *_ = program_mesh.resolve(NamedSharding(program_mesh.mesh, PartitionSpec(axis)), 1)
    assert parts is not UNCONSTRAINED
    return any(
        part.overlaps(other)
        for op in program.block.walk()
        if op.spec.spmd
        for other in op.attrs.get("axes", ())
        for part in parts
    )
