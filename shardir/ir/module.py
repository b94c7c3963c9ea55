"""The IR: modules of functions; `shardir.ir.operation` has blocks, operations and values.

All classes here are frozen. A pass never edits a module; it returns a new one. Values and
operations compare by identity, so they can be dictionary keys: an analysis is a `dict[Value, ...]`
beside the module, never a field of it.

The blocks of an operation (such as the body of a loop) may use values of the enclosing blocks; such
captured values are loop-invariant. Each value has one definition in its function (SSA form).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from shardir.display.representation import Printed
from shardir.errors import InterpretError
from shardir.ir.location import Loc as Loc
from shardir.ir.mesh import Mesh
from shardir.ir.operation import (
    Block as Block,
    DataFlowEdge as DataFlowEdge,
    Op as Op,
    Value as Value,
)
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType


@dataclass(frozen=True, slots=True, repr=False)
class GlobalTensor(Printed):
    """The global type and sharding of a per-device tensor."""

    type: TensorType
    sharding: Sharding


@dataclass(frozen=True, slots=True, repr=False)
class SpmdInterface(Printed):
    """The global types and shardings of the arguments and results of an `spmd` function."""

    params: tuple[GlobalTensor, ...]
    results: tuple[GlobalTensor, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(Printed):
    """A named block. `spmd` is set once the body is a per-device program.

    `result_shardings` are the requested shardings of the results; `None` where none is requested.
    """

    name: str
    """The name of the function, without `@`."""
    body: Block
    """The block of the function; its parameters are those of the function."""
    result_shardings: tuple[Sharding | None, ...]
    """The requested sharding of each result; `None` where none is requested."""
    spmd: SpmdInterface | None = None
    """The global arguments and results if the body is a per-device program, else `None`."""


_PLACES_OF_JAXPR_PARTS: Final = {
    "jaxpr": "the module is the program itself",
    "eqns": "the operations are module.main.body.ops",
    "invars": "the parameters are module.main.body.params",
    "outvars": "the results are module.main.body.returns",
    "in_avals": "the types are [param.type for param in module.main.body.params]",
    "out_avals": "the types are [value.type for value in module.main.body.returns]",
    "consts": "constants are operations `constant` in module.main.body.ops",
    "constvars": "constants are operations `constant` in module.main.body.ops",
    "literals": "constants are operations `constant` in module.main.body.ops",
    "effects": "operations with effects have op.spec.effect",
}
"""Where a module has the parts of a jaxpr, by the attributes of JAX."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Module(Printed):
    """Meshes and functions. The first function is the entry point."""

    meshes: tuple[Mesh, ...]
    """The meshes that the shardings and collectives of the functions name."""
    functions: tuple[Function, ...]
    """The functions; the first one is the entry point."""

    @property
    def main(self) -> Function:
        """The first function, which is the entry point."""
        return self.functions[0]

    def mesh(self, name: str) -> Mesh:
        """Return the mesh with a name; raise `KeyError` if the module has no such mesh."""
        for mesh in self.meshes:
            if mesh.name == name:
                return mesh
        raise KeyError(name)

    if not TYPE_CHECKING:  # Type checkers find attributes that do not exist.

        def __getattr__(self, name: str) -> NoReturn:
            message = f"'Module' object has no attribute {name!r}"
            if name in _PLACES_OF_JAXPR_PARTS:
                message = (
                    f"a traced program is a module of shardir's IR, not a jaxpr with {name}; "
                    f"{_PLACES_OF_JAXPR_PARTS[name]}"
                )
            raise AttributeError(message, name=name, obj=self)


def spmd_mesh_of(module: Module) -> Mesh:
    """Return the mesh whose devices run the module's per-device function."""
    spmd = module.main.spmd
    if spmd is None:
        raise InterpretError(f"@{module.main.name} is not a per-device function; partition it")
    for outer in (*spmd.params, *spmd.results):
        return module.mesh(outer.sharding.mesh)
    return module.meshes[0]
