"""Schedules of torch.distributed.pipelining as rows of text, without a process group."""

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


def torch_rows(name: str, ranks: int, microbatches: int) -> list[list[str]]:
    """Return the actions of each rank without idle slots and reductions of gradients."""
    from torch.distributed.pipelining import schedules

    make: Any = getattr(schedules, CLASSES[name])
    if name in ("gpipe", "1f1b"):
        schedule = make(_stage(0, ranks, ranks), microbatches, loss_fn=lambda *_: 0)
        order = schedule._get_pipeline_order()
    else:
        second = 2 * ranks - 1 if name in ("zbv", "dualpipev") else ranks
        stages = [_stage(0, 2 * ranks, ranks), _stage(second, 2 * ranks, ranks)]
        order = make(stages, microbatches, loss_fn=lambda *_: 0).pipeline_order
    return [
        [str(a) for a in order[rank] if a is not None and "REDUCE_GRAD" not in str(a)]
        for rank in range(ranks)
    ]
