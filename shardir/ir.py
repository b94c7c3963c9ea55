"""The IR: values, operations, blocks, functions and modules.

Everything here is frozen. A pass never edits a module; it returns a new one. Values and
operations compare by identity, so they can key dictionaries: an analysis is a
`dict[Value, ...]` beside the module, never a field inside it.

Blocks of an operation (the body of a loop) may use values of the blocks around them; such values
are the constants of a loop. A value has one definition in the whole function.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardir.factors import FactorRule
from shardir.mesh import Mesh
from shardir.opset import Attr, OpSpec, factor_rule
from shardir.placement import Sharding
from shardir.types import TensorType


@dataclass(frozen=True, slots=True)
class Loc:
    """Where in the user's program an operation came from."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor that exists once: a parameter or a result of one operation.

    `name` is for people. A value keeps its name through every pass, so that the text before and
    after a pass differs only where the pass did something. `sharding` is `None` when nothing has
    been said about it.
    """

    type: TensorType
    name: str = ""
    sharding: Sharding | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One application of an operation to values.

    `why` says, for an operation that a pass made, what it is for.
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
        """The only result."""
        (result,) = self.results
        return result

    @property
    def tensors(self) -> tuple[Value, ...]:
        """Operands, then results; in step with `FactorRule.tensors`."""
        return self.operands + self.results

    def factors(self) -> FactorRule | None:
        """The loops of this operation, and the dimensions each one walks."""
        return factor_rule(
            self.spec,
            tuple(value.type for value in self.operands),
            tuple(value.type for value in self.results),
            tuple(self.attrs.items()),
        )

    def edges(self) -> tuple["Edge", ...]:
        """How values flow into and out of its blocks."""
        return self.spec.edges(self) if self.spec.edges else ()

    def uses(self) -> Iterator[Value]:
        """Operands, and what its blocks use of the blocks around it (with repetitions)."""
        yield from self.operands
        for block in self.blocks:
            yield from block.captures()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Operations in dependency order, from parameters to returned values."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]
    returns: tuple[Value, ...]

    def values(self) -> Iterator[Value]:
        """Every value defined here, blocks of its operations not included."""
        yield from self.params
        for op in self.ops:
            yield from op.results

    def walk(self) -> Iterator[Op]:
        """Every operation, each before those of its own blocks."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()

    def captures(self) -> tuple[Value, ...]:
        """The values it uses but does not define, in order of first use."""
        defined = set(self.values())
        used: dict[Value, None] = {}
        for op in self.ops:
            used.update(dict.fromkeys(v for v in op.uses() if v not in defined))
        used.update(dict.fromkeys(v for v in self.returns if v not in defined))
        return tuple(used)


@dataclass(frozen=True, slots=True)
class Edge:
    """A value of many spellings: what flows from `sources` is what `targets` show.

    The first target owns the edge (the result of the loop). Those in `stacked` have one more
    dimension in front than the others (what a scan takes apart and puts together).
    """

    sources: tuple[Value, ...]
    targets: tuple[Value, ...]
    stacked: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Global:
    """What a per-device tensor is a shard of."""

    type: TensorType
    sharding: Sharding


@dataclass(frozen=True, slots=True)
class Interface:
    """How the global arguments and results of an `spmd` function are cut."""

    params: tuple[Global, ...]
    results: tuple[Global, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A named block. `spmd` is set once the body is a per-device program.

    `results` are the shardings asked of the results; `None` where nothing is.
    """

    name: str
    body: Block
    results: tuple[Sharding | None, ...]
    spmd: Interface | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """Meshes and functions; a program starts at the first function."""

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
        from shardir.text.printer import show

        return show(self)
