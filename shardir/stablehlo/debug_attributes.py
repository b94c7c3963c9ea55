"""Attributes of StableHLO text that describe how a program was compiled, and have no effect."""

from dataclasses import dataclass, field

from shardir.ir.module import Module, Value

PROPAGATION_EDGES = "sdy.propagation_edges"
BLOCK_PARAMETER_EDGES = "sdy.block_arg_propagation_edges"
RESULT_EDGES = "sdy.result_propagation_edges"
EDGE_ATTRIBUTES = (PROPAGATION_EDGES, BLOCK_PARAMETER_EDGES, RESULT_EDGES)
"""The attributes that record the steps of propagation."""
SHARDING_ORIGINS = "sdy.sharding_origins"
BLOCK_PARAMETER_ORIGINS = "sdy.block_arg_sharding_origins"
RESULT_ORIGINS = "sdy.result_sharding_origins"
ORIGIN_NAME = "sdy.sharding_origin_name"
ORIGIN_ATTRIBUTES = (SHARDING_ORIGINS, BLOCK_PARAMETER_ORIGINS, RESULT_ORIGINS, ORIGIN_NAME)
"""The attributes that record from which statement each axis of a sharding comes."""


@dataclass(frozen=True, slots=True)
class DebugAttributes:
    """Attributes that describe the compilation and have no effect: those of operations by their
    first result, those of parameters of functions, and those of results by the name of the function
    and their number."""

    operations: dict[Value, dict[str, str]] = field(default_factory=dict)
    results: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    params: dict[Value, dict[str, str]] = field(default_factory=dict)


NO_DEBUG_ATTRIBUTES = DebugAttributes()


@dataclass(frozen=True, slots=True)
class DescribedModule:
    """A module and the debug attributes of its text."""

    module: Module
    debug: DebugAttributes = NO_DEBUG_ATTRIBUTES

    def attributes_of(self, changed: Module) -> DebugAttributes:
        """Return the attributes that are still true of a module that passes made of this one.

        Those are the attributes of operations and parameters that the passes kept; attributes of
        the results of functions are true of this module only.
        """
        if changed is self.module:
            return self.debug
        return DebugAttributes(self.debug.operations, params=self.debug.params)
