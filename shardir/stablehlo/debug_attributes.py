"""Attributes of StableHLO text that describe how a program was compiled, and have no effect."""

from dataclasses import dataclass, field

from shardir.ir.module import Module, Value

PROPAGATION_EDGES = "sdy.propagation_edges"
BLOCK_PARAMETER_EDGES = "sdy.block_arg_propagation_edges"
RESULT_EDGES = "sdy.result_propagation_edges"
EDGE_ATTRIBUTES = (PROPAGATION_EDGES, BLOCK_PARAMETER_EDGES, RESULT_EDGES)
"""The attributes that record the steps of propagation."""


@dataclass(frozen=True, slots=True)
class DebugAttributes:
    """Attributes that describe the compilation and have no effect: those of operations by their
    first result, and those of results by the name of the function and their number."""

    operations: dict[Value, dict[str, str]] = field(default_factory=dict)
    results: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)


NO_DEBUG_ATTRIBUTES = DebugAttributes()


@dataclass(frozen=True, slots=True)
class DescribedModule:
    """A module and the debug attributes of its text."""

    module: Module
    debug: DebugAttributes = NO_DEBUG_ATTRIBUTES

    def attributes_of(self, changed: Module) -> DebugAttributes:
        """Return the attributes that are still true of a module that passes made of this one.

        Those are the attributes of operations that the passes kept; attributes of the results of
        functions are true of this module only.
        """
        return self.debug if changed is self.module else DebugAttributes(self.debug.operations)
