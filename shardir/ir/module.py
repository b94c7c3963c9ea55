"""The IR: values, operations, blocks, functions and modules.

All classes here are frozen. A pass never edits a module; it returns a new one. Values and
operations compare by identity, so they can be dictionary keys: an analysis is a `dict[Value, ...]`
beside the module, never a field of it.

The blocks of an operation (such as the body of a loop) may use values of the enclosing blocks; such
captured values are loop-invariant. Each value has one definition in its function (SSA form).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardir.ir.mesh import Mesh
from shardir.ir.operation import Attr, OpSpec, factor_rule
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorRule


@dataclass(frozen=True, slots=True)
class Loc:
    """The position in the user's program that an operation was traced from."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor in SSA form: a block parameter or one result of one operation.

    `name` is for readers. A value keeps its name through every pass, so that the text before and
    after a pass differs only where the pass changed the program. `sharding` is `None` while no
    sharding is stated or inferred.
    """

    type: TensorType
    name: str = ""
    sharding: Sharding | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One application of an operation to values.

    `why` states the purpose of an operation that a pass created.
    """

    spec: OpSpec
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    blocks: tuple["Block", ...] = ()
    loc: Loc | None = None
    why: str = ""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def result(self) -> Value:
        """The only result; raises `ValueError` if the operation has another number of results."""
        (result,) = self.results
        return result

    @property
    def tensors(self) -> tuple[Value, ...]:
        """The operands followed by the results, in the order of `FactorRule.tensors`."""
        return self.operands + self.results

    def factors(self) -> FactorRule | None:
        """Return the factor rule: the factors of this operation and the dimensions they map to."""
        return factor_rule(
            self.spec,
            tuple(value.type for value in self.operands),
            tuple(value.type for value in self.results),
            tuple(self.attrs.items()),
        )

    def edges(self) -> tuple["DataFlowEdge", ...]:
        """Return the data flow edges into and out of the blocks of this operation."""
        return self.spec.edges(self) if self.spec.edges else ()

    def uses(self) -> Iterator[Value]:
        """Yield the operands and the values that the blocks capture, with repetitions."""
        yield from self.operands
        for block in self.blocks:
            yield from block.captures()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Operations in topological order, with parameters and returned values."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]
    returns: tuple[Value, ...]

    def values(self) -> Iterator[Value]:
        """Yield every value that this block defines, excluding those of nested blocks."""
        yield from self.params
        for op in self.ops:
            yield from op.results

    def walk(self) -> Iterator[Op]:
        """Yield every operation, each before the operations of its blocks."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()

    def captures(self) -> tuple[Value, ...]:
        """Return the values that the block uses but does not define, in order of first use."""
        defined = set(self.values())
        used: dict[Value, None] = {}
        for op in self.ops:
            used.update(dict.fromkeys(v for v in op.uses() if v not in defined))
        used.update(dict.fromkeys(v for v in self.returns if v not in defined))
        return tuple(used)


@dataclass(frozen=True, slots=True)
class DataFlowEdge:
    """A data flow edge: the values of `sources` flow to all `targets`, so all have one sharding.

    The first target owns the edge (the result of a loop operation). Values in `stacked` have one
    additional leading dimension (the stacked inputs and outputs of a scan).
    """

    sources: tuple[Value, ...]
    targets: tuple[Value, ...]
    stacked: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class GlobalTensor:
    """The global type and sharding of a per-device tensor."""

    type: TensorType
    sharding: Sharding


@dataclass(frozen=True, slots=True)
class SpmdInterface:
    """The global types and shardings of the arguments and results of an `spmd` function."""

    params: tuple[GlobalTensor, ...]
    results: tuple[GlobalTensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A named block. `spmd` is set once the body is a per-device program.

    `result_shardings` are the requested shardings of the results; `None` where none is requested.
    """

    name: str
    body: Block
    result_shardings: tuple[Sharding | None, ...]
    spmd: SpmdInterface | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """Meshes and functions. The first function is the entry point."""

    meshes: tuple[Mesh, ...]
    functions: tuple[Function, ...]

    @property
    def main(self) -> Function:
        return self.functions[0]

    def mesh(self, name: str) -> Mesh:
        for mesh in self.meshes:
            if mesh.name == name:
                return mesh
        raise KeyError(name)

    def __str__(self) -> str:
        from shardir.text.printer import print_module

        return print_module(self)
