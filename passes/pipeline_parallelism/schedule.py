"""A pipeline schedule: one row of actions for each rank, read and printed as CSV or as a grid."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardir.passes.pipeline_parallelism.actions import (
    COMPUTATIONS,
    Action,
    PipelineScheduleError,
    parse_action,
)


@dataclass(frozen=True)
class PipelineSchedule:
    """Rows of actions. An entry `None` is an idle slot, which only the text shows."""

    rows: tuple[tuple[Action | None, ...], ...]
    """The actions of each rank, in the order in which the rank starts them."""

    @staticmethod
    def parse(text: str) -> "PipelineSchedule":
        """Return the schedule of a CSV text with one line for each rank and one action a cell.

        This is the format of `torch.distributed.pipelining`. An empty cell is an idle slot. Empty
        lines at the end are ignored; the line of a last rank without actions is a comma.

        Raises:
            PipelineScheduleError: a cell is not an action; the error names its row and column.
        """
        rows = []
        # Editors of tables begin a file with a byte order mark.
        lines = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
        try:
            table = list(lines)
        except csv.Error as error:
            raise PipelineScheduleError(f"row {lines.line_num}: {error}") from None
        while table and not table[-1]:
            table.pop()
        for rank, cells in enumerate(table):
            row: list[Action | None] = []
            for column, cell in enumerate(cells):
                try:
                    row.append(parse_action(cell.strip()) if cell.strip() else None)
                except PipelineScheduleError as error:
                    raise PipelineScheduleError(
                        f"row {rank + 1}, column {column + 1}: {error}"
                    ) from None
            rows.append(tuple(row))
        if not any(any(row) for row in rows):
            raise PipelineScheduleError("the text has no action; write one line for each rank")
        return PipelineSchedule(tuple(rows))

    def to_csv(self) -> str:
        """Return the schedule as CSV text, which `parse` reads."""
        return "".join((",".join(map(_cell, row)) or ",") + "\n" for row in self.rows)

    def to_grid(self) -> str:
        """Return the rows as aligned columns of text, one line for each rank."""
        width = max(len(_cell(action)) for row in self.rows for action in row)
        lines = [
            " ".join([f"rank {rank}:".ljust(9), *(_cell(a).ljust(width) for a in row)]).rstrip()
            for rank, row in enumerate(self.rows)
        ]
        return "\n".join(lines) + "\n"

    def actions(self, rank: int) -> Iterator[Action]:
        """Yield the actions of a rank, without its idle slots."""
        return (action for action in self.rows[rank] if action is not None)

    @cached_property
    def rank_of_stage(self) -> dict[int, int]:
        """The rank that computes each stage.

        Raises:
            PipelineScheduleError: two ranks compute one stage, or a stage is missing.
        """
        ranks: dict[int, int] = {}
        for rank in range(len(self.rows)):
            for action in self.actions(rank):
                for part in action.parts:
                    if part.kind in COMPUTATIONS and ranks.setdefault(part.stage, rank) != rank:
                        raise PipelineScheduleError(
                            f"rank {ranks[part.stage]} and rank {rank} compute stage {part.stage}; "
                            f"move {part} to the row of rank {ranks[part.stage]}"
                        )
        missing = next((stage for stage in range(len(ranks)) if stage not in ranks), None)
        if missing is not None or not ranks:
            raise PipelineScheduleError(
                f"no rank computes stage {missing or 0}; number the stages from 0 without gaps"
            )
        return ranks

    @property
    def stage_count(self) -> int:
        """The number of stages."""
        return len(self.rank_of_stage)

    @cached_property
    def microbatch_count(self) -> int:
        """The number of microbatches."""
        numbers = [part.microbatch for rank in range(len(self.rows))
                   for action in self.actions(rank) for part in action.parts]  # fmt: skip
        return 1 + max((number for number in numbers if number is not None), default=-1)


def _cell(action: Action | None) -> str:
    return "" if action is None else str(action)


def schedule_of_rows(rows: Sequence[Sequence[Action]]) -> PipelineSchedule:
    """Return the schedule with these rows."""
    return PipelineSchedule(tuple(map(tuple, rows)))
