"""The activations that one microbatch holds between the passes of each stage."""

from shardir.ops.control_flow.pipeline_slots import slot_number
from shardir.passes.pipeline_parallelism.actions import ActionKind
from shardir.passes.pipeline_parallelism.program import Fragment, StagedPipeline
from shardir.passes.pipeline_parallelism.simulation import PassMemory

F, B = ActionKind.FORWARD, ActionKind.BACKWARD
I, W = ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT  # noqa: E741


def memory_of_stages(pipeline: StagedPipeline) -> tuple[PassMemory, ...]:
    """Return the bytes of all devices of a row that one microbatch holds in each stage."""
    return tuple(_memory_of(pipeline, stage) for stage in range(pipeline.stage_count))


def _memory_of(pipeline: StagedPipeline, stage: int) -> PassMemory:
    passes = {kind: pipeline.fragments.get((stage, kind)) for kind in (F, B, I, W)}
    needed = {kind: set(_operand_bytes(passes[kind])) for kind in (B, I, W)}
    produced = _result_bytes(passes[F]) | _operand_bytes(passes[F])
    until_input = needed[B] | needed[I] | needed[W]
    whole = sum(size for name, size in produced.items() if name in until_input)
    available = produced | _result_bytes(passes[I])
    weights = sum(available[name] for name in needed[W] if name in available)
    return PassMemory(whole, weights)


def _operand_bytes(fragment: Fragment | None) -> dict[str, int]:
    """Return the bytes of the values that a fragment takes, without operands of the pipeline."""
    if fragment is None:
        return {}
    pairs = zip(fragment.takes, fragment.block.params, strict=True)
    return {
        name: value.type.nbytes for name, value in pairs if slot_number(name, "argument") is None
    }


def _result_bytes(fragment: Fragment | None) -> dict[str, int]:
    """Return the bytes of the values that a fragment gives."""
    if fragment is None:
        return {}
    pairs = zip(fragment.gives, fragment.block.returns, strict=True)
    return {name: value.type.nbytes for name, value in pairs}
