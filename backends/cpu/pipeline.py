"""Pass pipelines from a per-device program to the program over unsharded arrays that is
compiled."""

import re

_FOLD_PASSES = (
    "fold-reductions,fold-views,simplify,fold-diagonals,fill-out-of-bounds,fold-transposes"
)
_MERGED_PASSES = f"widen-small-dtypes,cse,dce,{_FOLD_PASSES},cse,dce,annotate-partial-sorts"
_FUSION_PASSES = "fuse-products,dce,fuse"
FUSED_PIPELINE = f"merge-devices,{_MERGED_PASSES},{_FUSION_PASSES}"
"""The passes after partitioning."""


def process_pipeline(across: str, at: str, small: int) -> str:
    """Return the passes that make the fused program of one process of several; see
    `hierarchical-collectives`."""
    levels = f"across={across},at={at}"
    passes = f"{_MERGED_PASSES},{_FUSION_PASSES}"
    merged = re.sub(r"\b(cse|dce|simplify)\b", r"\1{keep=collectives}", passes)
    split = f"hierarchical-collectives{{{levels},small={small}}}"
    return f"{split},merge-devices{{{levels}}},{merged}"
