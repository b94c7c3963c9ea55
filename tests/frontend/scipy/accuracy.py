"""The largest errors of functions that are made of operations, in ulp: of f32 and of f64."""

BOUNDS: dict[str, dict[str, float]] = {
    "ndtr": {"f32": 1.4, "f64": 2.2},
    "log_ndtr": {"f32": 2.1, "f64": 2.3},
    "ndtri": {"f32": 1.6, "f64": 1.4},
    "i0e": {"f32": 1.9, "f64": 1.9},
    "i1e": {"f32": 2.0, "f64": 1.9},
    "i0": {"f32": 3.7, "f64": 3.0},
    "i1": {"f32": 3.7, "f64": 3.0},
    "logit": {"f32": 1.5, "f64": 1.5},
    "rel_entr": {"f32": 2.0, "f64": 2.2},
    "zeta": {"f32": 4.0, "f64": 5.0},
}


def cases(*names: str) -> list[tuple[str, str]]:
    """The functions named, of each type."""
    return [(name, dtype) for name in names for dtype in BOUNDS[name]]
