"""The table of the compiled calls of a function, which all tiers of dispatch share.

The signature of a call consists of the pytree structure and static parts of its arguments, the
signatures of its arrays (abstract values and shardings), and the trace context. A call is run by
the first tier that has it:

1. The native call cache (`native_call_cache`) finds its launch without running Python code.
2. The signatures of the arrays alone find its launch here, where all arguments are arrays. Only the
   last trace context of such a call is known; the objects of the context are compared.
3. Its whole signature finds its program here. If there is none, the function is traced.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from shardir.frontend import config
from shardir.frontend.dispatch import execution_context
from shardir.frontend.pytree import tree
from shardir.frontend.shardings import mesh
from shardir.frontend.tracing import trace
from shardir.op_rules import custom_rules

if TYPE_CHECKING:
    from shardir.frontend.dispatch.programs.runnable import Runnable
    from shardir.frontend.shardings.mesh import Mesh

MAX_CACHED_PROGRAMS = 4096
"""Maximum number of programs in a cache; a full cache is cleared."""

TraceContext = tuple[
    tuple[tuple[str, object], ...],
    "Mesh | None",
    custom_rules.RuleSet,
    execution_context.ExecutionContext,
]


def trace_context() -> TraceContext:
    """Return the trace context: settings, mesh, registered rules and execution context."""
    return (
        config.config.snapshot(),
        mesh.current_mesh(),
        custom_rules.rules_in_force(),
        execution_context.execution_context(),
    )


CONTEXT_VARIABLES = (
    config._block_scope,
    mesh._entered_meshes,
    custom_rules._block,
    execution_context._execution_context,
)
"""The variables whose values determine the trace context, apart from those of the process."""
PROCESS_SCOPES, PROCESS_RULES = config._process_scopes, custom_rules._process
"""The settings of the process, and the rules that are registered in it."""
CURRENT_TRACE = trace._current

ContextObjects = tuple[object, object, object, object]
"""The settings and the values of the other variables, which are compared by identity."""

_block_scope, _entered_meshes, _block_rules, _execution_context = [
    variable.get for variable in CONTEXT_VARIABLES
]
_current_trace = CURRENT_TRACE.get


def context_objects() -> ContextObjects:
    """Return the objects that determine the trace context, after it was read for the first time.

    They do not determine it while rules are registered for the process.
    """
    return (
        _block_scope() or PROCESS_SCOPES[0],
        _entered_meshes(),
        _block_rules(),
        _execution_context(),
    )


def is_current(objects: ContextObjects) -> bool:
    """Return whether calls are not traced, and the trace context still consists of these objects;
    equal ones do not count."""
    settings, meshes, rules, running = objects
    return (
        _current_trace() is None
        and (_block_scope() or PROCESS_SCOPES[0]) is settings
        and _entered_meshes() is meshes
        and _block_rules() is rules
        and _execution_context() is running
        and not PROCESS_RULES
    )


class CompiledCall(NamedTuple):
    """The program of a call, and the structure of its results, `None` for a single array.

    `launch` runs the program on arrays while `context` consists of the same objects. It is a
    `Launch` in entries for the signatures of arrays, and `None` in entries for a whole signature.
    """

    program: "Runnable"
    structure: tree.PyTreeDef | None
    launch: Any
    context: ContextObjects


class CallTable(dict[Hashable, CompiledCall]):
    """The compiled calls of one function, by the signatures of their arrays or by the whole
    signature."""

    __slots__ = ()

    def add(self, signature: Hashable, call: CompiledCall) -> None:
        """Add a call; other threads may read the table."""
        if len(self) >= MAX_CACHED_PROGRAMS:
            self.clear()
        self[signature] = call

    def num_programs(self) -> int:
        """Return the number of different programs."""
        return len({id(call.program) for call in self.values()})
