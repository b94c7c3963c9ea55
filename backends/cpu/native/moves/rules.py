"""Every operation that has a rule here."""

from shardir.backends.cpu.native.data import Rule
from shardir.backends.cpu.native.moves import (
    arranging,
    choosing,
    extremes,
    hashing,
    lookup,
    running,
    scattering,
    sorting,
    windows,
)

RULES: dict[str, Rule] = {
    **arranging.RULES,
    **lookup.RULES,
    **scattering.RULES,
    **running.RULES,
    **extremes.RULES,
    **hashing.RULES,
    **windows.RULES,
    **choosing.RULES,
    **sorting.RULES,
}
"""Phases for operands and results that lie in any way."""
