"""The fragments of a pipeline as programs of the devices of a row."""

from dataclasses import replace

from shardir.frontend.pipelines.fragments import (
    PartitionedFragment,
    partition_fragment,
    row_mesh,
    row_sharding,
)
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.sharding import DimSharding, Sharding
from shardir.ops.control_flow.pipeline_slots import given_cotangent, received_cotangent, slot_number
from shardir.ops.control_flow.pipelines import pipeline
from shardir.passes.autodiff.residuals import eliminate_dead_operations
from shardir.passes.pipeline import STAGING_PIPELINE, Pipeline
from shardir.passes.pipeline_parallelism.actions import ActionKind
from shardir.passes.pipeline_parallelism.program import FragmentKey, StagedPipeline


def stage_pipelines(module: Module) -> Module:
    """Return the module with each pipeline split into stages and scheduled."""
    return Pipeline.parse(STAGING_PIPELINE)(_propagate_to_operands(module))


def _propagate_to_operands(module: Module) -> Module:
    """Return the module in which operands of pipelines that are computed state the shardings that
    propagation gives them.

    The rows of a pipeline take operands as they are sharded, and propagation runs after the
    pipelines are compiled.
    """
    main = module.main
    computed = {value for op in main.body.ops for value in op.results if value.sharding is None}
    operands = [x for op in main.body.ops if op.spec is pipeline for x in op.operands]
    inputs = tuple(dict.fromkeys(x for x in operands if x in computed))
    if not inputs or not module.meshes:
        return module
    ops = tuple(eliminate_dead_operations(main.body.ops, inputs))
    ahead = replace(
        main, body=Block(main.body.params, ops, inputs), result_shardings=(None,) * len(inputs)
    )
    made = Pipeline.parse("propagate")(replace(module, functions=(ahead, *module.functions[1:])))
    new = {
        value: replace(value, sharding=found.sharding)
        for value, found in zip(inputs, made.main.body.returns, strict=True)
        if found.sharding is not None and [*found.sharding.used_axes()]
    }
    body = substitute(main.body, new)
    return replace(module, functions=(replace(main, body=body), *module.functions[1:]))


def mesh_of_pipeline(op: Op, module: Module) -> Mesh:
    """Return the mesh with the axis of a pipeline."""
    return next(mesh for mesh in module.meshes if op.attrs["axis"] in mesh.sizes)


def partition_pipeline(
    pipeline: StagedPipeline, mesh: Mesh
) -> dict[FragmentKey, PartitionedFragment]:
    """Return the fragments of a pipeline as programs of the devices of a row."""
    axis = pipeline.op.attrs["axis"]
    shardings = _ValueShardings(pipeline, row_mesh(mesh, axis), axis)
    stages = range(pipeline.stage_count)
    backward = (ActionKind.BACKWARD, ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT)
    order = [(stage, ActionKind.FORWARD) for stage in stages]
    order += [(stage, kind) for stage in reversed(stages) for kind in backward]
    return {key: shardings.partition(key) for key in order if key in pipeline.fragments}


class _ValueShardings:
    """The shardings of the values of a pipeline on the mesh of a row, by stage and name.

    Fragments are partitioned in the order in which a microbatch passes them, so that each receives
    values with the sharding with which they are sent.
    """

    def __init__(self, pipeline: StagedPipeline, mesh: Mesh | None, axis: str) -> None:
        self.pipeline, self.mesh, self.axis = pipeline, mesh, axis
        self._known: dict[tuple[int, str], Sharding | None] = {}

    def partition(self, key: FragmentKey) -> PartitionedFragment:
        """Return the partitioned fragment, and record the shardings of its results."""
        stage, _ = key
        fragment = self.pipeline.fragments[key]
        given = [
            self._of(stage, slot, param)
            for slot, param in zip(fragment.takes, fragment.block.params, strict=True)
        ]
        requested = [
            self._of_gradient(slot, value)
            for slot, value in zip(fragment.gives, fragment.block.returns, strict=True)
        ]
        made = partition_fragment(fragment, given, requested, self.mesh)
        for slot, sharding in zip(fragment.gives, made.results, strict=True):
            self._known[stage, slot] = sharding
            if stage + 1 < self.pipeline.stage_count and slot in self.pipeline.forward[stage]:
                self._known[stage + 1, slot] = sharding
        for name in self.pipeline.backward[stage - 1] if stage and self.pipeline.backward else ():
            if given_cotangent(name) in fragment.gives:
                sent = self._known[stage, given_cotangent(name)]
                self._known[stage - 1, received_cotangent(name)] = sent
        return made

    def _of(self, stage: int, slot: str, param: Value) -> Sharding | None:
        number = slot_number(slot, "argument")
        if number is None:
            return self._known.get((stage, slot))
        operand = self.pipeline.op.operands[number]
        return row_sharding(operand.sharding, param.type, self.axis, self.mesh)

    def _of_gradient(self, slot: str, value: Value) -> Sharding | None:
        """Return the requested sharding of a gradient: that of its operand, to which propagation
        may add axes. Without it, each microbatch could sum or gather the whole gradient."""
        number = slot_number(slot, "gradient")
        if number is None:
            return None
        operand = self.pipeline.op.operands[number]
        sharding = row_sharding(operand.sharding, value.type, self.axis, self.mesh)
        if sharding is None:
            return None
        return Sharding(sharding.mesh, tuple(DimSharding(dim.axes) for dim in sharding.dims))
