"""The actions of a rank with the lifetimes of the values that it holds."""

from dataclasses import dataclass

from shardir.frontend.pipelines.wiring import Wiring
from shardir.ops.control_flow.pipeline_slots import slot_number
from shardir.passes.pipeline_parallelism.actions import Action
from shardir.passes.pipeline_parallelism.progress import SEND_OF

ACTIONS_AHEAD = 4
"""The number of following actions whose receives are started early."""


@dataclass(frozen=True)
class ScheduledAction:
    """An action with the names that no later action of its rank needs, by stage and microbatch."""

    action: Action
    """The action."""
    last_uses: tuple[tuple[tuple[int, int | None], str], ...]
    """The names that no later action needs."""
    receives_ahead: tuple[Action, ...]
    """The receives among the next actions of the rank."""


def row_with_lifetimes(wiring: Wiring, rank: int) -> tuple[ScheduledAction, ...]:
    """Return the actions of a rank with the last uses of the values that it holds."""
    needed: set[tuple[tuple[int, int | None], str]] = set()
    row = []
    actions = [*wiring.schedule.actions(rank)]
    for i, action in reversed([*enumerate(actions)]):
        used = {
            ((part.stage, part.microbatch), name)
            for part in action.parts
            for name in wiring.find_needed_names(part)
            if slot_number(name, "argument") is None
        }
        following = actions[i + 1 : i + 1 + ACTIONS_AHEAD]
        receives = tuple(each for each in following if each.kind in SEND_OF)
        row.append(ScheduledAction(action, tuple(sorted(used - needed)), receives))
        needed |= used
    return tuple(reversed(row))
