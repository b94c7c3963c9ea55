"""From the program of each device to the program over whole arrays that is compiled."""

WHOLE = (
    "merge-devices,cse,dce,fold-sums,fold-views,simplify,fold-diagonals,fold-transposes,cse,dce,"
    "want-places"
)
"""The passes after partitioning, up to which operations are fused."""
