"""The values that the actions of a pipeline take, give and send."""

from dataclasses import dataclass

from shardir.ir.types import TensorType
from shardir.ops.control_flow.pipeline_slots import (
    LOSS,
    given_cotangent,
    received_cotangent,
    slot_number,
)
from shardir.ops.control_flow.pipelines import stacked_type
from shardir.passes.pipeline_parallelism.actions import COMPUTATIONS, Action, ActionKind
from shardir.passes.pipeline_parallelism.program import StagedPipeline
from shardir.passes.pipeline_parallelism.progress import RECEIVE_OF
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule

F = ActionKind.FORWARD


@dataclass(frozen=True)
class Wiring:
    """The values that each action takes from and gives to the values of its microbatch."""

    pipeline: StagedPipeline
    schedule: PipelineSchedule

    def sent(self, action: Action) -> tuple[str, ...]:
        """Return the names under which the stage of a send has the values to send."""
        if action.kind is ActionKind.SEND_FORWARD:
            return self.pipeline.forward[action.stage]
        return tuple(map(given_cotangent, self.pipeline.backward[action.stage - 1]))

    def find_received_names(self, action: Action) -> tuple[str, ...]:
        """Return the names under which the stage of a receive takes the values."""
        if action.kind is ActionKind.RECEIVE_FORWARD:
            return self.pipeline.forward[action.stage - 1]
        return tuple(map(received_cotangent, self.pipeline.backward[action.stage]))

    def send_within_rank(self, part: Action) -> Action | None:
        """Return the send that a computation stands for if its rank has the next stage too."""
        ranks = self.schedule.rank_of_stage
        is_forward = part.kind is F
        if not is_forward and not part.kind.is_backward:
            return None
        following = part.stage + (1 if is_forward else -1)
        if ranks.get(following) != ranks[part.stage]:
            return None
        kind = ActionKind.SEND_FORWARD if is_forward else ActionKind.SEND_BACKWARD
        return Action(part.stage, kind, part.microbatch)

    def find_needed_names(self, part: Action) -> tuple[str, ...]:
        """Return the names that a single action takes from the values of its microbatch."""
        if part.kind in COMPUTATIONS:
            return self.pipeline.fragments[part.stage, part.kind].takes
        return self.sent(part) if part.kind in RECEIVE_OF else ()

    def sent_types(self, send: Action) -> list[TensorType]:
        """Return the types of the values of a send; a cotangent has the type of its value."""
        is_forward = send.kind is ActionKind.SEND_FORWARD
        receiver = send.stage + 1 if is_forward else send.stage
        names = self.pipeline.forward[receiver - 1]
        if not is_forward:
            names = self.pipeline.backward[receiver - 1]
        fragment = self.pipeline.fragments[receiver, F]
        types = {
            name: value.type
            for name, value in zip(fragment.takes, fragment.block.params, strict=True)
        }
        return [types[name] for name in names]

    def combined_types(self, stage: int) -> dict[str, TensorType]:
        """Return the types of the values of a stage that are combined from all microbatches."""
        return {
            name: value.type
            if is_summed(name)
            else stacked_type(value.type, self.pipeline.microbatches)
            for (owner, _), fragment in self.pipeline.fragments.items()
            for name, value in zip(fragment.gives, fragment.block.returns, strict=True)
            if owner == stage and (is_summed(name) or is_auxiliary(name))
        }


def is_auxiliary(name: str) -> bool:
    """Return whether a value that a fragment gives is an auxiliary result of a microbatch."""
    return slot_number(name, "auxiliary") is not None


def is_summed(name: str) -> bool:
    """Return whether a value that a fragment gives is a term of a sum over microbatches."""
    return name == LOSS or slot_number(name, "gradient") is not None
