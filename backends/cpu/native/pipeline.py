"""From the program of each device to the program over whole arrays that is compiled."""

import re

_FOLDED = "fold-reductions,fold-views,simplify,fold-diagonals,fill-out-of-bounds,fold-transposes"
_MERGED = f"cse,dce,{_FOLDED},cse,dce,annotate-partial-sorts"
WHOLE = f"merge-devices,{_MERGED}"
"""The passes after partitioning, up to which operations are fused."""


def of_process(across: str, at: str, small: int) -> str:
    """The passes to the program of one process of many, fused; see `hierarchical-collectives`."""
    levels = f"across={across},at={at}"
    merged = re.sub(r"\b(cse|dce)\b", r"\1{keep=collectives}", _MERGED)
    split = f"hierarchical-collectives{{{levels},small={small}}}"
    return f"{split},merge-devices{{{levels}}},{merged},fuse"
