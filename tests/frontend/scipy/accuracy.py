"""The largest errors in ulp, of f32 and of f64, of functions that are compositions of
operations.
"""

import mpmath as mp
import numpy as np

BOUNDS: dict[str, dict[str, float]] = {
    "ndtr": {"f32": 1.55, "f64": 2.2},
    "log_ndtr": {"f32": 1.95, "f64": 2.3},
    "ndtri": {"f32": 1.6, "f64": 1.4},
    "i0e": {"f32": 1.9, "f64": 1.9},
    "i1e": {"f32": 2.0, "f64": 1.9},
    "i0": {"f32": 0.65, "f64": 3.0},
    "i1": {"f32": 0.85, "f64": 3.0},
    "logit": {"f32": 1.5, "f64": 1.5},
    "rel_entr": {"f32": 0.51, "f64": 2.2},
    "kl_div": {"f32": 0.52, "f64": 4.5},
    "gamma": {"f32": 0.51, "f64": 5.0},
    "factorial": {"f32": 0.51, "f64": 4.0},
    "beta": {"f32": 0.51, "f64": 7.0},
    "poch": {"f32": 0.51, "f64": 7.0},
    "gammainc": {"f32": 0.51, "f64": 20.0},
    "gammaincc": {"f32": 0.51, "f64": 20.0},
    "betainc": {"f32": 0.51, "f64": 20.0},
    "zeta": {"f32": 0.51, "f64": 4.5},
    "polygamma": {"f32": 0.51, "f64": 6.0},
}


def cases(*names: str) -> list[tuple[str, str]]:
    """Return the named functions with each dtype."""
    return [(name, dtype) for name in names for dtype in BOUNDS[name]]


def ulps(got: float, expected: mp.mpf, dtype: type) -> float:
    """Return the error of a number in units in the last place.

    An infinity is exact if the exact number is beyond the range of the dtype.
    """
    about = np.finfo(dtype)
    if abs(expected) > mp.mpf(float(about.max)):
        return 0.0 if np.isinf(got) else float("inf")
    if not np.isfinite(got):
        return float("inf")
    exponent = int(mp.frexp(expected)[1]) - 1 if expected else about.minexp
    unit = mp.mpf(2) ** (max(exponent, about.minexp) - about.nmant)
    return float(abs(mp.mpf(got) - expected) / unit)
