"""The stage of each operation of a pipeline: that of its mark, or the one where it sends least."""

from collections.abc import Sequence

from shardir.errors import ShardirError
from shardir.ir.module import Block, Op, Value
from shardir.ops.control_flow.pipelines import pipeline_stage


class PipelineStageError(ShardirError, ValueError):
    """The stages of a pipeline contradict each other, the mesh or the schedule."""


def stage_error(message: str, op: Op) -> PipelineStageError:
    """Return the error with the line of the user's program."""
    return PipelineStageError(f"{message}\n --> {op.loc}" if op.loc else message)


def assign_stages(block: Block) -> dict[Op, int | None]:
    """Return the stage of each operation of a block.

    A marked operation has the stage of its mark. An operation on values of earlier stages is
    computed in the earliest stage that has all of them, or later if that sends fewer bytes between
    stages. `None`: the operation depends on arguments only, which each stage has, and each stage
    that needs its results computes them.

    Raises:
        PipelineStageError: a value of a stage feeds an earlier stage, or a mark is inside a loop.
    """
    stages = _earliest_stages(block)
    _move_later(block, stages)
    return stages


def stage_of_values(block: Block, stages: dict[Op, int | None]) -> dict[Value, int | None]:
    """Return the stage of each result; parameters of the block have none."""
    return {value: stages[op] for op in block.ops for value in op.results}


def _earliest_stages(block: Block) -> dict[Op, int | None]:
    stages: dict[Op, int | None] = {}
    maker: dict[Value, Op] = {value: op for op in block.ops for value in op.results}
    for op in block.ops:
        for inner in op.blocks:
            for nested in inner.walk():
                if nested.spec is pipeline_stage:
                    raise stage_error(
                        f"stage {nested.attrs['stage']} is marked inside of {op.name}; mark stages "
                        "outside of loops and branches",
                        nested,
                    )
        above = [(s, x) for x in op.uses() if x in maker and (s := stages[maker[x]]) is not None]
        earliest = max((s for s, _ in above), default=None)
        if op.spec is pipeline_stage:
            own: int = op.attrs["stage"]
            if earliest is not None and earliest > own:
                value = next(x for s, x in above if s == earliest)
                raise stage_error(
                    f"stage {own} uses %{value.name}, which stage {earliest} computes; a stage "
                    "uses values of earlier stages only",
                    op,
                )
            earliest = own
        stages[op] = earliest
    return stages


def _move_later(block: Block, stages: dict[Op, int | None]) -> None:
    """Move unmarked operations, last ones first, to the stage in which they send fewest bytes."""
    users: dict[Value, list[Op]] = {}
    for op in block.ops:
        for value in dict.fromkeys(op.uses()):
            users.setdefault(value, []).append(op)
    maker = {value: op for op in block.ops for value in op.results}

    def used_in(value: Value, excluded: Op | None = None) -> list[int]:
        at = (stages[op] for op in users.get(value, ()) if op is not excluded)
        return [stage for stage in at if stage is not None]

    for op in reversed(block.ops):
        earliest = stages[op]
        needed = [stage for value in op.results for stage in used_in(value)]
        if op.spec is pipeline_stage or earliest is None or not needed:
            continue

        def sent(stage: int, op: Op = op) -> int:
            """Return the bytes of operands and results that stages send if `op` is in `stage`."""
            total = 0
            for value in op.results:
                total += value.type.nbytes * (max(used_in(value), default=stage) - stage)
            for value in dict.fromkeys(op.uses()):
                start = stages[maker[value]] if value in maker else None
                if start is not None:
                    last = max(used_in(value, op), default=start)
                    total += value.type.nbytes * max(stage - max(last, start), 0)
            return total

        stages[op] = min(range(earliest, min(needed) + 1), key=sent)


def count_stages(block: Block, op: Op) -> int:
    """Return the number of stages; raise `PipelineStageError` unless the last one has the loss."""
    marked = sorted({o.attrs["stage"]: None for o in block.ops if o.spec is pipeline_stage})
    if not marked:
        raise stage_error(
            "the pipeline has no stages; mark them with sd.stage(0)(f), sd.stage(1)(g), ...", op
        )
    missing = _first_gap(marked)
    if missing is not None:
        raise stage_error(
            f"the pipeline has stage {marked[-1]} and no stage {missing}; number the stages from 0 "
            "without gaps, and let the loss use each of them",
            op,
        )
    return int(marked[-1]) + 1


def _first_gap(numbers: Sequence[int]) -> int | None:
    return next((i for i, number in enumerate(numbers) if i != number), None)
