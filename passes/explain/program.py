"""The propagation histories of a module or a lowered function."""

from dataclasses import dataclass
from typing import Protocol

from shardir.errors import ShardirError, suggestion
from shardir.ir import Module
from shardir.passes.explain.history import History, Places
from shardir.passes.propagate import Propagate


class HasModule(Protocol):
    """A lowered function: a traced program and the locations in its source."""

    @property
    def module(self) -> Module: ...


Program = Module | HasModule


class ExplainError(ShardirError, ValueError):
    """A request that cannot be answered for a program."""


@dataclass(frozen=True)
class Told:
    """A module, the propagated module, and the history of each function."""

    module: Module
    propagated: Module
    histories: dict[str, History]

    def history(self, function: str | None = None) -> History:
        """Return the history of a function, of the first by default."""
        name = self.module.main.name if function is None else function.removeprefix("@")
        if name not in self.histories:
            hint = suggestion(name, self.histories) or _has(self.histories)
            raise ExplainError(f"no function is called {name!r}; {hint}")
        return self.histories[name]


def _has(histories: dict[str, History]) -> str:
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


def tell(program: Program, propagate: Propagate | None, places: Places | None) -> Told:
    """Propagate once, with a record."""
    module = module_of(program)
    propagated, record = (propagate or Propagate()).explained(module)
    found = places if places is not None else getattr(program, "places", {})
    return Told(
        module,
        propagated,
        {name: History(propagated, story, found) for name, story in record.stories.items()},
    )
