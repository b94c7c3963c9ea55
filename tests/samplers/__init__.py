"""One function per operation that adds the operation to a random program.

A sampler draws operands and attributes that the operation accepts, and appends it. Every program
made so runs: indices may be out of range, because the operations define the result, but loops
terminate.
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
from tests.samplers.scope import SAMPLERS, Scope, executable_ops

__all__ = [
    "SAMPLERS",
    "Scope",
    "collective",
    "control",
    "creation",
    "decompositions",
    "executable_ops",
    "hosted",
    "manual",
    "pointwise",
    "reductions",
    "shapes",
    "windows",
]
