"""The shards of operands and results that the devices of a pipeline hold.

before: `%loss, %w.grad = staged-pipeline(%w, %x, batched=[1], microbatches=8, ...)`
after:  `%x.divided = reshape(%x) : f32[8, 4, 8]`,
        `%x.microbatches = sharding_constraint(%x.divided) : f32[8, 4@data, 8]`,
        `%loss, %w.grad = manual_computation(%w, %x.microbatches, axes=[pipe, data],
        in_axes=[[[pipe], [], []], [[], [data], []]], ...) { ... pipeline-call(...) ... }`

If each row uses only its own block of an operand, such as stacked weights, the rows hold blocks of
it, and of its gradient. Otherwise all rows hold the operand. Within a row, an operand has the
sharding with which the stages take it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardir.frontend.pipelines.fragments import PartitionedFragment, row_mesh, row_sharding
from shardir.ir.builder import Builder
from shardir.ir.host_function import HostFunction
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Op, Value
from shardir.ir.sharding import Axis, DimSharding, Sharding
from shardir.ir.types import TensorType
from shardir.ops.control_flow.manual_computation import (
    ManualDimAxes,
    manual_computation,
    manual_local_type,
)
from shardir.ops.control_flow.pipeline_slots import auxiliary_slot, slot_number, slot_window
from shardir.ops.control_flow.pipelines import (
    auxiliary_results,
    microbatch_type,
    pipeline_call,
)
from shardir.passes.pipeline_parallelism.program import FragmentKey, StagedPipeline
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule


@dataclass(frozen=True)
class PipelinePlacement:
    """The axes that shard the operands and the results of a pipeline."""

    pipeline: StagedPipeline
    schedule: PipelineSchedule
    mesh: Mesh

    @property
    def axis(self) -> str:
        """The axis of the pipeline."""
        axis: str = self.pipeline.op.attrs["axis"]
        return axis

    @property
    def row_count(self) -> int:
        """The number of rows of devices."""
        return len(self.schedule.rows)

    @cached_property
    def block_dims(self) -> dict[int, int]:
        """The operands of which each row uses only its own block, with the dimension of blocks."""
        windows: dict[int, list[tuple[int, tuple[slice, ...]]]] = {}
        for (stage, _), fragment in self.pipeline.fragments.items():
            for slot in fragment.takes:
                number = slot_number(slot, "argument")
                if number is not None:
                    rank = self.schedule.rank_of_stage[stage]
                    windows.setdefault(number, []).append((rank, slot_window(slot)))
        found = {}
        for number, parts in windows.items():
            shape = self.pipeline.op.operands[number].type.shape
            depth = min(len(window) for _, window in parts)
            for dim in range(depth):
                size, rest = divmod(shape[dim], self.row_count)
                if not rest and all(
                    rank * size <= window[dim].start and window[dim].stop <= (rank + 1) * size
                    for rank, window in parts
                ):
                    found[number] = dim
                    break
        return found

    def is_in_blocks(self, slot: str) -> bool:
        """Return whether a slot names a gradient of which each row holds its own block."""
        return slot_number(slot, "gradient") in self.block_dims

    def block_type(self, number: int) -> TensorType:
        """Return the type of the part of an operand that a row holds."""
        type = self.pipeline.op.operands[number].type
        dim = self.block_dims.get(number)
        if dim is None:
            return type
        size = type.shape[dim] // self.row_count
        return type.with_shape((*type.shape[:dim], size, *type.shape[dim + 1 :]))

    def in_axes(self, number: int) -> ManualDimAxes:
        """Return the axes that shard an operand; a batch has a dimension of microbatches first."""
        operand, mesh = self.pipeline.op.operands[number], row_mesh(self.mesh, self.axis)
        type = self.block_type(number)
        is_batched = number in self.pipeline.batched_operands
        if is_batched:
            type = microbatch_type(type, self.pipeline.microbatches)
        sharding = row_sharding(operand.sharding, type, self.axis, mesh)
        dims = self._with_rows(number, sharding, type)
        return ((), *dims) if is_batched else dims

    def out_axes(
        self, number: int, fragments: Mapping[FragmentKey, PartitionedFragment]
    ) -> ManualDimAxes:
        """Return the axes that shard the gradient of an operand, as the stages return it."""
        shardings = {
            sharding
            for key, fragment in self.pipeline.fragments.items()
            for slot, sharding in zip(fragment.gives, fragments[key].results, strict=True)
            if slot_number(slot, "gradient") == number
        }
        # Stages that return different shardings return whole gradients.
        sharding = shardings.pop() if len(shardings) == 1 else None
        return self._with_rows(number, sharding, self.block_type(number))

    def auxiliary_axes(
        self, number: int, fragments: Mapping[FragmentKey, PartitionedFragment]
    ) -> ManualDimAxes:
        """Return the axes that shard an auxiliary result of all microbatches."""
        result = auxiliary_results(self.pipeline.op)[number]
        for key, fragment in self.pipeline.fragments.items():
            for slot, sharding in zip(fragment.gives, fragments[key].results, strict=True):
                if slot == auxiliary_slot(number) and sharding is not None:
                    sizes = zip(sharding.dims, result.type.shape[1:], strict=True)
                    return ((), *(d.axes if n % d.num_shards == 0 else () for d, n in sizes))
        return ((),) * result.type.rank

    def _with_rows(self, number: int, sharding: Sharding | None, type: TensorType) -> ManualDimAxes:
        dims = [()] * type.rank if sharding is None else [dim.axes for dim in sharding.dims]
        dims = [
            axes if size % DimSharding(axes).num_shards == 0 else ()
            for axes, size in zip(dims, type.shape, strict=True)
        ]
        if number in self.block_dims:
            dims[self.block_dims[number]] = (Axis.full(self.axis, self.mesh),)
        return tuple(dims)

    def append_call(
        self,
        b: Builder,
        function: HostFunction,
        fragments: Mapping[FragmentKey, PartitionedFragment],
    ) -> None:
        """Append the operations that call a function with the shards of the operands."""
        op, batched = self.pipeline.op, self.pipeline.batched_operands
        b.loc = op.loc
        in_axes = tuple(map(self.in_axes, range(len(op.operands))))
        operands = [
            self._divide(b, value, in_axes[number]) if number in batched else value
            for number, value in enumerate(op.operands)
        ]
        axes = tuple(Axis.full(name, self.mesh) for name, _ in self.mesh.axes)
        auxiliary = range(len(auxiliary_results(op)))
        out_axes = (
            ((),) * op.results[0].type.rank,
            *(self.auxiliary_axes(number, fragments) for number in auxiliary),
            *(self.out_axes(number, fragments) for number in self.pipeline.wrt),
        )
        attrs = {"axes": axes, "in_axes": in_axes, "out_axes": out_axes}

        def local(values: Sequence[Value], sharded: Sequence[ManualDimAxes]) -> tuple[Value, ...]:
            return tuple(
                Value(manual_local_type(x.type, dims, axes), b.names.fresh(x.name))
                for x, dims in zip(values, sharded, strict=True)
            )

        params, results = local(operands, in_axes), local(op.results, out_axes)
        call = Op(pipeline_call, params, results, {"function": function, **attrs}, (), op.loc)
        block = Block(params, (call,), results)
        b.append(Op(manual_computation, tuple(operands), op.results, attrs, (block,), op.loc))

    def _divide(self, b: Builder, batch: Value, needed: ManualDimAxes) -> Value:
        """Append a reshape of a batch to microbatches, and its sharding `needed` by the call; each
        device holds whole microbatches before, if the batch divides into them."""
        part = microbatch_type(batch.type, self.pipeline.microbatches)
        type = part.with_shape((self.pipeline.microbatches, *part.shape))
        sharding = batch.sharding
        if sharding is not None:
            first, *rest = sharding.dims
            is_whole = type.shape[0] % first.num_shards == 0
            dims = (first, DimSharding(()), *rest)
            sharding = Sharding(sharding.mesh, dims) if is_whole else None
        divided: Value = b.reshape(
            batch, result=type, name=f"{batch.name}.divided", sharding=sharding
        )
        b.why = f"the pipeline divides each microbatch of %{batch.name} over a row of devices"
        target = Sharding.of(self.mesh.name, needed)
        placed: Value = b.sharding_constraint(
            divided, name=f"{batch.name}.microbatches", sharding=target
        )
        b.why = ""
        return placed
