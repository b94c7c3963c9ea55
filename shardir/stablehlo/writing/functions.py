"""The functions of a module's text, in which equal functions of calls are one private function.

Each call has a block of its own. Two calls share a function if they name the same one and their
blocks differ in the names of values only, shardings included; another copy gets another name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardir.ir.builder import UniqueNames
from shardir.ir.equality import are_equal
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Op
from shardir.ir.operation import OPS
from shardir.stablehlo.writing.attributes import format_symbol
from shardir.stablehlo.writing.writer import WRITERS, MlirWriter


@dataclass(frozen=True, slots=True)
class CalledFunction:
    """A private function of the text; `mesh` and `has_replicas` are those of the writer of its
    first call."""

    function: Function
    mesh: Mesh | None
    has_replicas: bool


@dataclass(slots=True)
class FunctionTable:
    """The private functions of a text, by the names of the functions that calls state."""

    names: UniqueNames
    by_callee: dict[str, list[CalledFunction]] = field(default_factory=dict)
    unwritten: list[CalledFunction] = field(default_factory=list)
    """The functions that are called and not written yet."""

    @classmethod
    def of(cls, module: Module) -> "FunctionTable":
        """Return an empty table for the text of a module."""
        return cls(UniqueNames([function.name for function in module.functions]))

    def name_of(self, op: Op, mesh: Mesh | None, *, has_replicas: bool) -> str:
        """Return the name of the function of a call, which is added if no equal one exists."""
        callee: str = op.attrs["callee"]
        function = Function(callee, op.blocks[0], tuple(value.sharding for value in op.results))
        known = self.by_callee.setdefault(callee, [])
        for each in known:
            if (each.mesh, each.has_replicas) == (mesh, has_replicas) and _are_equal(
                each.function, function
            ):
                return each.function.name
        named = Function(self.names.fresh(callee), function.body, function.result_shardings)
        new = CalledFunction(named, mesh, has_replicas)
        known.append(new)
        self.unwritten.append(new)
        return named.name


def _are_equal(one: Function, other: Function) -> bool:
    """Return whether two functions of the same name differ in the names of values only."""
    renamed = Function(one.name, other.body, other.result_shardings)
    modules: Sequence[Module] = (Module((), (one,)), Module((), (renamed,)))
    return are_equal(*modules, names=False)


@WRITERS.rule(OPS["call"])
def _call(w: MlirWriter, op: Op) -> None:
    name = w.functions.name_of(op, w.mesh, has_replicas=w.replicas)
    w.write_op(op, "func.call", {"callee": format_symbol(name)})
