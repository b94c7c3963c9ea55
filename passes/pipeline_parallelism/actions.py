"""The actions of a pipeline schedule, in the notation of `torch.distributed.pipelining`.

An action is written `<stage><kind><microbatch>`: `2F0` is the forward pass of microbatch 0 in
stage 2. A forward and a backward pass that run together are written `(0F7;7B3)OVERLAP_F_B`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from shardir.errors import ShardirError


class PipelineScheduleError(ShardirError, ValueError):
    """A pipeline schedule is malformed, incomplete or never ends."""


class ActionKind(StrEnum):
    """The kind of an action, by its text."""

    FORWARD = "F"
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"
    BACKWARD = "B"
    """The gradients of the input and of the weights in one."""
    SEND_FORWARD = "SEND_F"
    RECEIVE_FORWARD = "RECV_F"
    SEND_BACKWARD = "SEND_B"
    RECEIVE_BACKWARD = "RECV_B"
    UNSHARD = "UNSHARD"
    """The all-gather of the sharded weights of a stage."""
    RESHARD = "RESHARD"
    """The release of the gathered weights of a stage."""
    REDUCE_GRADIENTS = "REDUCE_GRAD"
    """The reduction of the gradients of the weights of a stage over its replicas."""

    @property
    def has_microbatch(self) -> bool:
        """True if an action of this kind belongs to one microbatch."""
        return self not in _KINDS_OF_STAGES

    @property
    def is_backward(self) -> bool:
        """True if the action computes the gradient of the input of a stage."""
        return self in (ActionKind.BACKWARD, ActionKind.INPUT_GRADIENT)


_KINDS_OF_STAGES = (ActionKind.UNSHARD, ActionKind.RESHARD, ActionKind.REDUCE_GRADIENTS)

COMPUTATIONS = (
    ActionKind.FORWARD,
    ActionKind.INPUT_GRADIENT,
    ActionKind.WEIGHT_GRADIENT,
    ActionKind.BACKWARD,
)
"""The kinds that compute."""

_SUFFIX_OF_OVERLAP = "OVERLAP_F_B"
_SINGLE = re.compile(
    rf"([0-9]{{1,9}})({'|'.join(sorted(ActionKind, key=len, reverse=True))})([0-9]{{0,9}})"
)
_OVERLAP = re.compile(rf"\(([^;()]*);([^;()]*)\){_SUFFIX_OF_OVERLAP}")


@dataclass(frozen=True, slots=True)
class Action:
    """One action of one stage, or a forward and a backward pass that run together."""

    stage: int
    """The number of the stage; that of the forward pass if two passes run together."""
    kind: ActionKind
    """The kind; that of the forward pass if two passes run together."""
    microbatch: int | None = None
    """The number of the microbatch; `None` for an action of a whole stage."""
    overlapped: "Action | None" = None
    """The backward pass that runs together with this forward pass."""

    @property
    def parts(self) -> tuple["Action", ...]:
        """The single actions: this one, or the two passes that run together."""
        if self.overlapped is None:
            return (self,)
        return (Action(self.stage, self.kind, self.microbatch), self.overlapped)

    def __str__(self) -> str:
        number = "" if self.microbatch is None else self.microbatch
        text = f"{self.stage}{self.kind}{number}"
        return (
            text if self.overlapped is None else f"({text};{self.overlapped}){_SUFFIX_OF_OVERLAP}"
        )


def parse_action(text: str) -> Action:
    """Return the action of a text; raise `PipelineScheduleError` if it is malformed."""
    both = _OVERLAP.fullmatch(text)
    if both is not None:
        first, second = (parse_action(part) for part in both.groups())
        if first.kind is not ActionKind.FORWARD or not second.kind.is_backward:
            raise PipelineScheduleError(
                f"{text!r} overlaps {first.kind} and {second.kind}; a forward pass F overlaps a "
                "backward pass B or I"
            )
        return Action(first.stage, first.kind, first.microbatch, second)
    match = _SINGLE.fullmatch(text)
    if match is None:
        hint = (
            "; this is an older notation of torch: write B instead of BW, and I instead of B"
            if re.fullmatch(r"\d+BW\d+", text)
            else ""
        )
        raise PipelineScheduleError(
            f"{text!r} is not an action; write the stage, one of {', '.join(ActionKind)}, and the "
            f"microbatch, such as 2F0{hint}"
        )
    stage, kind, microbatch = int(match[1]), ActionKind(match[2]), match[3]
    if kind.has_microbatch != bool(microbatch):
        lacks = (
            "lacks the number of a microbatch"
            if kind.has_microbatch
            else (f"names microbatch {microbatch}, and {kind} belongs to a whole stage")
        )
        raise PipelineScheduleError(f"{text!r} {lacks}")
    return Action(stage, kind, int(microbatch) if microbatch else None)
