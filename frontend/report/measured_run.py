"""The last run of a profile as records: the tasks of each thread."""

from shardir.frontend.profiling.profile_data import (
    Profile,
    activity_name,
    format_locations,
    is_collective_activity,
    thread_name,
)
from shardir.frontend.report.records import ActivityRecord, RunRecord, TaskRecord
from shardir.frontend.report.tables import Table


def run_record(profile: Profile) -> RunRecord:
    """Return the record of the last run of a profile."""
    run = profile.runs[-1]
    threads = sorted({span.thread for span in run.spans})
    lanes = {thread: lane for lane, thread in enumerate(threads)}
    activities: Table[ActivityRecord] = Table()
    numbers: dict[tuple[int, str], int] = {}
    counts, busy = [0] * len(lanes), [0] * len(lanes)
    tasks = []
    for span in run.spans:
        activity, lane, duration = span.activity, lanes[span.thread], span.end - span.begin
        key = activity.key, span.label
        if key not in numbers:
            numbers[key] = activities.number(
                ActivityRecord(
                    activity_name(activity),
                    span.label,
                    format_locations(activity.op),
                    is_collective_activity(activity),
                )
            )
        tasks.append(TaskRecord(numbers[key], lane, span.begin - run.begin, duration))
        counts[lane] += 1
        busy[lane] += duration
    return RunRecord(
        tuple(map(thread_name, threads)),
        tuple(zip(counts, busy, strict=True)),
        activities.items,
        tuple(tasks),
        run.end - run.begin,
        run.lost,
    )
