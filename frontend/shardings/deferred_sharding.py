"""Deferred shardings: requests that are resolved when the traced program is known."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.sharding import NamedSharding, Sharding
from shardir.ir.module import Module


@dataclass(frozen=True, slots=True)
class UnshardedProgram:
    """A traced program before the shardings of its arguments are chosen.

    `module` has the requested shardings of results, and none of arguments; `stated` has the
    shardings of arguments that are given, `None` for those to choose. `mesh` is the mesh that the
    request of another argument or of a result names, or the entered one. `pipeline` is the text of
    the passes that compile the program, `donated` the parameters that results overwrite.
    """

    module: Module
    mesh: Mesh | None
    stated: tuple[Sharding | None, ...]
    pipeline: str
    donated: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChosenShardings:
    """The shardings of all arguments, and of the results that have one.

    `constrain` adds those of values inside of the lowered program. `find_plan` returns the plan
    that chose the shardings, from the function and its lowered program.
    """

    arguments: tuple[Sharding, ...]
    results: tuple[Sharding | None, ...]
    constrain: Callable[[Module], Module] | None = None
    find_plan: Callable[[Any, Any], Any] | None = None

    def agrees_with(self, stated: Sequence[Sharding | None], ranks: Sequence[int]) -> bool:
        """Return whether arguments with the `stated` shardings have the chosen ones."""
        return all(
            given is None
            or (
                given.device_assignment == chosen.device_assignment
                and given.is_equivalent_to(chosen, rank)
            )
            for given, chosen, rank in zip(stated, self.arguments, ranks, strict=True)
        )


class DeferredSharding(ABC):
    """A request for shardings that are chosen for a traced program, such as `AUTO`."""

    __slots__ = ()

    @abstractmethod
    def choose(self, program: UnshardedProgram) -> ChosenShardings:
        """Return the shardings of the arguments and results of a program."""


def mesh_of_requests(requests: Sequence[object]) -> Mesh | None:
    """Return the mesh of the first named sharding, `None` without one."""
    return next((each.mesh for each in requests if isinstance(each, NamedSharding)), None)
