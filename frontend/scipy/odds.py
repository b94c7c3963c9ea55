"""The logarithm of odds, of f32 and f64."""

from math import log
from typing import Any

from shardir.frontend import numpy as snp

SMALL = {4: 2.0**-100, 8: 2.0**-1000}
"""Numbers below have inverses that may be infinite, by the bytes of an element."""
STEPS = 64
"""By how many powers of two they are raised."""


def log_odds(x: Any) -> Any:
    """log(x / (1 - x)), by what the two differ; 2x - 1 is exact where it is small."""
    small = (x >= 0) & (x < SMALL[x.dtype.itemsize])
    least = snp.where(small, snp.abs(x) * 2.0**STEPS, snp.minimum(x, 1 - x))
    size = snp.log1p(snp.abs(2 * x - 1) / least) + snp.where(small, STEPS * log(2), 0.0)
    return snp.where(x < 0.5, -size, size)
