"""The propagation histories of a module or a lowered function."""

from dataclasses import dataclass
from typing import Protocol

from shardir.errors import ShardirError, suggest_name
from shardir.ir.module import Module
from shardir.passes.explain.history import FunctionHistory, SourceLocations
from shardir.passes.propagation.propagate import Propagate


class HasModule(Protocol):
    """A lowered function: a traced program and the locations in its source."""

    @property
    def module(self) -> Module: ...


Program = Module | HasModule


class ExplainError(ShardirError, ValueError):
    """A request that cannot be answered for a program."""


@dataclass(frozen=True)
class PropagatedProgram:
    """A module, the propagated module, and the history of each function."""

    module: Module
    propagated: Module
    histories: dict[str, FunctionHistory]

    def history(self, function: str | None = None) -> FunctionHistory:
        """Return the history of a function, of the first by default."""
        name = self.module.main.name if function is None else function.removeprefix("@")
        if name not in self.histories:
            hint = suggest_name(name, self.histories) or _list_functions(self.histories)
            raise ExplainError(f"no function is called {name!r}; {hint}")
        return self.histories[name]


def _list_functions(histories: dict[str, FunctionHistory]) -> str:
    return f"there is {', '.join('@' + name for name in histories)}"


def module_of(program: Program) -> Module:
    """Return the module of a program; raise `ExplainError` if there is nothing to propagate."""
    module = program if isinstance(program, Module) else program.module
    if not module.functions:
        raise ExplainError("there is no function to explain")
    if not any(not mesh.is_maximal for mesh in module.meshes):
        raise ExplainError("the program has no mesh, so nothing in it is sharded")
    for function in module.functions:
        if function.spmd:
            raise ExplainError(
                f"@{function.name} has been partitioned; explain the program before that"
            )
    return module


def propagate_with_history(
    program: Program, propagate: Propagate | None, places: SourceLocations | None
) -> PropagatedProgram:
    """Propagate once, with a record."""
    module = module_of(program)
    propagated, record = (propagate or Propagate()).run_recorded(module)
    locations = places if places is not None else getattr(program, "user_locations", {})
    return PropagatedProgram(
        module,
        propagated,
        {
            name: FunctionHistory(propagated, story, locations)
            for name, story in record.histories.items()
        },
    )
