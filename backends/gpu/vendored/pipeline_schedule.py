"""The schedule of a pipeline: the actions of each row of devices.

Actions have the notation of `torch.distributed.pipelining`: `2F0` is the forward pass of microbatch
0 in stage 2, B the backward pass, I and W the gradients of the input and of the weights, `SEND_F`,
`RECV_F`, `SEND_B` and `RECV_B` transfers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from shardir.backends.gpu.vendored.comm import CommError

PASSES = ("F", "B", "I", "W")
SENDS = ("SEND_F", "SEND_B")
_RECEIVES = ("RECV_F", "RECV_B")
_OF_STAGES = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
_ACTION = re.compile(rf"(\d+)({'|'.join((*SENDS, *_RECEIVES, *_OF_STAGES, *PASSES))})(\d*)")
_OVERLAP = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")

Place = tuple[int, int]
"""A stage and a microbatch."""


@dataclass(frozen=True)
class Action:
    """One action of a stage; `microbatch` is -1 for an action of a whole stage."""

    stage: int
    kind: str
    microbatch: int

    @property
    def place(self) -> Place:
        """Return the stage and the microbatch."""
        return self.stage, self.microbatch

    @property
    def is_transfer(self) -> bool:
        """Return whether the action sends or receives."""
        return self.kind in (*SENDS, *_RECEIVES)

    @property
    def counterpart(self) -> "Action":
        """Return the receive of a send, or the send of a receive."""
        words = ("SEND", "RECV") if self.kind in SENDS else ("RECV", "SEND")
        return Action(self.stage + self.step, self.kind.replace(*words), self.microbatch)

    @property
    def step(self) -> int:
        """Return the difference between the stage of the counterpart of a transfer and its own."""
        return 1 if self.kind in ("SEND_F", "RECV_B") else -1

    @property
    def text(self) -> str:
        """Return the action in the notation of schedules."""
        return f"{self.stage}{self.kind}{'' if self.microbatch < 0 else self.microbatch}"

    def __str__(self) -> str:
        where = f", microbatch {self.microbatch}" if self.microbatch >= 0 else ""
        return f"{self.text} of the pipeline (stage {self.stage}{where})"


@lru_cache(maxsize=16)
def read_rows(schedule: tuple[str, ...], microbatches: int) -> tuple[tuple[Action, ...], ...]:
    """Return the actions of all rows; raise `CommError` if one is wrong, or if rows would wait for
    each other.
    """
    rows = tuple(tuple(read_row(text, rank)) for rank, text in enumerate(schedule))
    for rank, row in enumerate(rows):
        for action in row:
            if action.microbatch >= microbatches:
                raise CommError(
                    f"rank {rank} has {action}, and the microbatches are 0 to {microbatches - 1}; "
                    "remove the action, or emit a program with more"
                )
    _check_transfers([[action for action in row if action.is_transfer] for row in rows])
    return rows


def _check_transfers(rows: Sequence[Sequence[Action]]) -> None:
    """Raise `CommError` unless each transfer of the rows has one counterpart in another row, and
    all rows end if a send waits for its receive.
    """
    ranks: dict[Action, int] = {}
    for rank, row in enumerate(rows):
        for action in row:
            if action in ranks:
                raise CommError(
                    f"rank {rank} has {action}, which rank {ranks[action]} has too; remove one"
                )
            ranks[action] = rank
    for action, rank in ranks.items():
        if ranks.get(action.counterpart, rank) == rank:
            raise CommError(f"rank {rank} has {action}, and no other row has {action.counterpart}")
    left = [list(reversed(row)) for row in rows]
    heads = [row[-1] for row in left if row]
    while heads:
        ready = [action for action in heads if action.counterpart in heads]
        if not ready:
            waiting = ", ".join(
                f"rank {rank} at {row[-1].text}" for rank, row in enumerate(left) if row
            )
            raise CommError(
                f"the rows of the schedule wait for each other: {waiting}; change the order of the "
                "transfers"
            )
        for action in ready:
            left[ranks[action]].pop()
        heads = [row[-1] for row in left if row]


def read_row(text: str, rank: int) -> list[Action]:
    """Return the actions of a row; passes that overlap run one after the other."""
    actions = []
    for cell in filter(None, map(str.strip, text.split(","))):
        both = _OVERLAP.fullmatch(cell)
        for part in both.groups() if both is not None else (cell,):
            match = _ACTION.fullmatch(part)
            if match is None or (match[2] in _OF_STAGES) == bool(match[3]):
                raise CommError(f"{cell!r} in the row of rank {rank} is not an action")
            actions.append(Action(int(match[1]), match[2], int(match[3] or -1)))
    return actions
