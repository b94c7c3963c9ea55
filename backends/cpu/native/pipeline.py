"""Pass pipelines from a per-device program to the program over unsharded arrays that is
compiled."""

import re

_FOLDED = "fold-reductions,fold-views,simplify,fold-diagonals,fill-out-of-bounds,fold-transposes"
_MERGED = f"cse,dce,{_FOLDED},cse,dce,annotate-partial-sorts"
WHOLE = f"merge-devices,{_MERGED}"
"""The passes between partitioning and fusion."""


def of_process(across: str, at: str, small: int) -> str:
    """Return the passes that make the fused program of one process of several; see
    `hierarchical-collectives`."""
    levels = f"across={across},at={at}"
    merged = re.sub(r"\b(cse|dce)\b", r"\1{keep=collectives}", _MERGED)
    split = f"hierarchical-collectives{{{levels},small={small}}}"
    return f"{split},merge-devices{{{levels}}},{merged},fuse"
