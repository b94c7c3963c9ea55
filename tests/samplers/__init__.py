"""One way per operation to add it to a random program.

A sampler draws operands and attributes that the operation takes, and appends it. Every program
made so runs: indices may be out of range, since the operations say what that means, but loops end.
"""

from tests.samplers import (
    collective,
    control,
    creation,
    decompositions,
    hosted,
    manual,
    pointwise,
    reductions,
    shapes,
    windows,
)
from tests.samplers.scope import SAMPLERS, Scope, sampled

__all__ = [
    "SAMPLERS",
    "Scope",
    "collective",
    "control",
    "creation",
    "decompositions",
    "hosted",
    "manual",
    "pointwise",
    "reductions",
    "sampled",
    "shapes",
    "windows",
]
