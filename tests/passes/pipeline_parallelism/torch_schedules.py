"""Schedules of torch.distributed.pipelining as rows of text, without a process group."""

import csv
from io import StringIO
from types import SimpleNamespace
from typing import Any

CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-1f1b": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
    "interleaved-zero-bubble": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}
"""The class of each schedule."""


def _stage(index: int, count: int, ranks: int) -> SimpleNamespace:
    from torch.nn import Identity

    return SimpleNamespace(
        stage_index=index,
        num_stages=count,
        group_size=ranks,
        group_rank=0,
        submod=Identity(),
        has_backward=True,
        is_first=index == 0,
        is_last=index == count - 1,
        device="cpu",
    )


def _pipeline_order(name: str, ranks: int, microbatches: int) -> dict[int, list[Any]]:
    from torch.distributed.pipelining import schedules

    make: Any = getattr(schedules, CLASSES[name])
    order: dict[int, list[Any]]
    if name in ("gpipe", "1f1b"):
        schedule = make(_stage(0, ranks, ranks), microbatches, loss_fn=lambda *_: 0)
        order = schedule._get_pipeline_order()
    else:
        second = 2 * ranks - 1 if name in ("zbv", "dualpipev") else ranks
        stages = [_stage(0, 2 * ranks, ranks), _stage(second, 2 * ranks, ranks)]
        order = make(stages, microbatches, loss_fn=lambda *_: 0).pipeline_order
    return order


def torch_rows(name: str, ranks: int, microbatches: int) -> list[list[str]]:
    """Return the actions of each rank without idle slots and reductions of gradients."""
    order = _pipeline_order(name, ranks, microbatches)
    return [
        [str(a) for a in order[rank] if a is not None and "REDUCE_GRAD" not in str(a)]
        for rank in range(ranks)
    ]


def torch_csv(name: str, ranks: int, microbatches: int, has_transfers: bool) -> str:
    """Return the file that torch writes for a schedule of two stages on each rank."""
    from torch.distributed.pipelining import schedules

    order = _pipeline_order(name, ranks, microbatches)
    if has_transfers:
        last = 2 * ranks - 1
        rank_of: Any = (
            (lambda stage: min(stage, last - stage))
            if name in ("zbv", "dualpipev")
            else (lambda stage: stage % ranks)
        )
        order = schedules._add_send_recv(order, rank_of, 2 * ranks)
    text = StringIO()
    # As `_dump_csv`, which writes a file.
    csv.writer(text, lineterminator="\n").writerows(order[rank] for rank in range(ranks))
    return text.getvalue()
