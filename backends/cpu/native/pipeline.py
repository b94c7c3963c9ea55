"""From the program of each device to the program over whole arrays that is compiled."""

import re

_FOLDED = "fold-sums,fold-views,simplify,fold-diagonals,fill-rows,fold-transposes"
_MERGED = f"cse,dce,{_FOLDED},cse,dce,want-places"
WHOLE = f"merge-devices,{_MERGED}"
"""The passes after partitioning, up to which operations are fused."""


def of_process(across: str, at: str, small: int) -> str:
    """The passes to the program of one process of many, fused; see `two-levels`."""
    levels = f"across={across},at={at}"
    merged = re.sub(r"\b(cse|dce)\b", r"\1{keep=collectives}", _MERGED)
    return f"two-levels{{{levels},small={small}}},merge-devices{{{levels}}},{merged},fuse"
