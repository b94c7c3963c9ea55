"""Import of all rule modules, which registers their rules."""

from shardir.frontend.interop import (
    rules_collectives,
    rules_control,
    rules_derivatives,
    rules_elementwise,
    rules_equinox,
    rules_host,
    rules_indexing,
    rules_linalg,
    rules_ragged,
    rules_random,
    rules_shapes,
)

RULE_MODULES = (
    rules_collectives,
    rules_control,
    rules_derivatives,
    rules_elementwise,
    rules_equinox,
    rules_host,
    rules_indexing,
    rules_linalg,
    rules_ragged,
    rules_random,
    rules_shapes,
)
"""The imported modules with rules."""
