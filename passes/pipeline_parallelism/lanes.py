"""The lanes of a simulated pipeline: a line of text for each rank, with time from left to right."""

from shardir.passes.pipeline_parallelism.simulation import PipelineSimulation

MAX_COLUMNS = 240
"""The maximum length of a lane, unless passes become too short to read."""
MIN_PASS_COLUMNS = 4
"""The columns of the shortest pass, if all passes are at least that long."""


def lanes_of(simulation: PipelineSimulation) -> str:
    """Return one line for each rank: `F0--` is the forward pass of microbatch 0, `.` is idle time.

    The name of a pass lacks the stage if its rank has only one.
    """
    schedule = simulation.schedule
    durations = [simulation.ends[a] - start for a, start in simulation.starts.items()]
    shortest = min((float(d) for d in durations if d > 0), default=1.0)
    span = float(simulation.makespan) or 1.0
    scale = min(MIN_PASS_COLUMNS / shortest, max(MAX_COLUMNS / span, 1 / shortest))
    origin = float(min(simulation.starts.values()))
    stages = [
        {part.stage for action in schedule.actions(rank) for part in action.parts}
        for rank in range(len(schedule.rows))
    ]
    lines = []
    for rank, own in enumerate(stages):
        lane = ""
        for action in schedule.actions(rank):
            start, end = (
                round((float(time) - origin) * scale)
                for time in (simulation.starts[action], simulation.ends[action])
            )
            name = "+".join(
                f"{part.stage if len(own) > 1 else ''}{part.kind}{part.microbatch}"
                for part in action.parts
            )
            lane = lane.ljust(start, ".") + name[: end - start].ljust(end - start, "-")
        lines.append(f"rank {rank}: ".ljust(9) + lane)
    return "\n".join(lines) + "\n"
