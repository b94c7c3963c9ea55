"""Pass pipelines from a per-device program to the program over unsharded arrays that is
compiled."""

import re

_FOLDED = "fold-sums,fold-views,simplify,fold-diagonals,fill-rows,fold-transposes"
_MERGED = f"cse,dce,{_FOLDED},cse,dce,want-places"
WHOLE = f"merge-devices,{_MERGED}"
"""The passes between partitioning and fusion."""


def of_process(across: str, at: str, small: int) -> str:
    """Return the passes that make the fused program of one process of several; see `two-levels`."""
    levels = f"across={across},at={at}"
    merged = re.sub(r"\b(cse|dce)\b", r"\1{keep=collectives}", _MERGED)
    return f"two-levels{{{levels},small={small}}},merge-devices{{{levels}}},{merged},fuse"
