"""The verifier: checks the rules of the IR and reports every violation.

A pass may assume that its input verifies, and its output must verify. One walk finds all faults;
the report shows each with its line of text, the faulty part underlined, and its source location.
"""

from collections.abc import Iterator
from functools import cached_property

from shardir.build import infer
from shardir.divergence import divergences
from shardir.errors import OperationTypeError, VerifyError, counted
from shardir.faults import Fault, Faults
from shardir.ir import Block, Function, Global, Module, Op, Value
from shardir.mesh import Mesh
from shardir.ops.manual import manual_computation
from shardir.ops.overlap import unfinished
from shardir.opset import Attr
from shardir.placement import Axes, Axis, Sharding
from shardir.signature import check_call
from shardir.text.printer import AXES, mesh_of, show_mesh
from shardir.types import TensorType
from shardir.wellformed import (
    attribute_faults,
    axis_faults,
    mesh_faults,
    sharding_faults,
    type_faults,
)

GLOBAL_ONLY = ("manual_computation", "reshard", "sharding_constraint")
"""Operations on shardings, which values of per-device programs do not have."""


def verify(module: Module) -> None:
    """Raise `VerifyError` with every fault of the module, if there is one."""
    found = faults(module)
    if not found:
        return
    if len(found) == 1:
        raise VerifyError(str(found[0]))
    raise VerifyError("\n\n".join([f"the module has {len(found)} faults", *map(str, found)]))


def faults(module: Module) -> list[Fault]:
    """Return every fault of the module in program order."""
    found: list[Fault] = []
    meshes: dict[str, Mesh] = {}
    for mesh in module.meshes:
        line = show_mesh(mesh)
        messages = list(mesh_faults(mesh))
        if mesh.name in meshes:
            messages.append(f"two meshes are called @{mesh.name}")
        found += [Fault(message, "", line, 0, len(line)) for message in messages]
        meshes.setdefault(mesh.name, mesh)
    names: set[str] = set()
    for function in module.functions:
        checker = _Checker(function, meshes)
        if function.name in names:
            line = f"func @{function.name}"
            message = f"two functions are called @{function.name}"
            found.append(Fault(message, function.name, line, 0, len(line)))
        names.add(function.name)
        checker.check()
        found += checker.found.faults
    return found


class _Checker:
    """Collects the faults of one function."""

    def __init__(self, function: Function, meshes: dict[str, Mesh]) -> None:
        self.function, self.meshes = function, meshes
        self.found = Faults(function, meshes)
        self.visible: set[Value] = set()
        self.defined: set[Value] = set()
        self.named: dict[str, Value] = {}
        self.manual: list[Op] = []
        """The manual computations that enclose the current operation."""
        self._shardings: dict[tuple[Sharding, TensorType], list[str]] = {}
        self._types: dict[TensorType, list[str]] = {}

    def check(self) -> None:
        self.block(self.function.body, None)
        self.results()
        if self.function.spmd:
            self.interface()
            if not self.found.faults:
                self.meetings()

    def block(self, block: Block, owner: Op | None) -> None:
        """Check a block; its values are visible to later operations of the block and to their
        blocks.
        """
        defined: list[Value] = []
        for i, param in enumerate(block.params):
            for _, message in self.definition(param, defined):
                self.found.at_block(message, block, owner, "params", i)
        for op in block.ops:
            self.op(op)
            for i, result in enumerate(op.results):
                for part, message in self.definition(result, defined):
                    self.found.at_op(
                        message, op, "results" if part == "name" else "types", i, result
                    )
        for op, message in unfinished(block):
            self.found.at_op(message, op)
        for i, value in enumerate(block.returns):
            if value not in self.visible:
                self.found.at_block(self.unseen(value), block, owner, "returns", i)
        self.visible.difference_update(defined)

    def op(self, op: Op) -> None:
        for i, value in enumerate(op.operands):
            if value not in self.visible:
                self.found.at_op(self.unseen(value), op, "operands", i, value)
        for i, (name, attr) in enumerate(op.attrs.items()):
            for message in attribute_faults(attr):
                self.found.at_op(f"attribute {name!r} of {op.name} {message}", op, "attrs", i)
            if name in AXES:
                for message in self.axes(attr):
                    self.found.at_op(message, op, "attrs", i)
        if op.spec is manual_computation:
            self.computation(op)
        else:
            for block in op.blocks:
                self.block(block, op)
        self.types(op)
        spmd = self.function.spmd is not None
        if op.spec.spmd and not spmd:
            if not self.manual:
                self.found.at_op(
                    f"{op.name} is allowed only in an spmd function or a manual_computation; "
                    "partition the module first",
                    op,
                )
            for i, (name, attr) in enumerate(op.attrs.items()):
                for axis in mesh_axes(attr) if self.manual and name in AXES else ():
                    if not any(whole.contains(axis) for whole in self.manual_axes()):
                        self.found.at_op(
                            f"{op.name} is along {axis.name!r}, which no manual_computation around "
                            f"it has among its axes; they have {self.manual_names()}",
                            op, "attrs", i,
                        )  # fmt: skip
        if spmd and op.name in GLOBAL_ONLY:
            self.found.at_op(
                f"{op.name} has no meaning in a spmd function, whose values are local", op
            )

    def computation(self, op: Op) -> None:
        """Check a block without captures, whose values are local along the manual axes."""
        attr = list(op.attrs).index("axes") if "axes" in op.attrs else 0
        for axis in mesh_axes(op.attrs.get("axes")):
            if any(manual.overlaps(axis) for manual in self.manual_axes()):
                self.found.at_op(
                    f"{axis.name!r} is already manual in an enclosing manual_computation",
                    op,
                    "attrs",
                    attr,
                )
        self.manual.append(op)
        for i, block in enumerate(op.blocks):
            for value in block.captures():
                if value in self.visible:
                    self.found.at_op(
                        f"block {i} of {op.name} uses {self.found.name(value)} of the blocks "
                        "around it; make it an operand, so that in_axes state how it is sharded",
                        op, value=value,
                    )  # fmt: skip
            self.block(block, op)
        self.manual.pop()

    def manual_axes(self) -> Axes:
        """Return the axes of all enclosing manual computations."""
        return tuple(axis for op in self.manual for axis in mesh_axes(op.attrs.get("axes")))

    def manual_names(self) -> str:
        return ", ".join(repr(axis.name) for axis in self.manual_axes()) or "none"

    def types(self, op: Op) -> None:
        """Check that the type rule infers the stated result types."""
        stated = tuple(value.type for value in op.results)
        try:
            check_call(op.spec, len(op.operands), op.attrs, len(op.blocks))
            inferred = infer(
                op.spec,
                op.operands,
                stated[0] if len(stated) == 1 else stated,
                op.attrs,
                op.blocks,
            )
        except OperationTypeError as error:
            self.found.at_op(str(error), op)
            return
        # A type rule may raise any exception for values that it does not expect.
        except Exception as error:
            kind = type(error).__name__
            self.found.at_op(f"{op.name}: its type rule fails on this ({kind}: {error})", op)
            return
        if inferred == stated:
            return
        if len(inferred) != len(stated):
            self.found.at_op(
                f"{op.name} has {counted(len(inferred), 'result')}, not {len(stated)}", op
            )
            return
        for i, (want, got) in enumerate(zip(inferred, stated, strict=True)):
            if want != got:
                self.found.at_op(f"the result of {op.name} is {want}, not {got}", op, "types", i)

    def definition(self, value: Value, defined: list[Value]) -> Iterator[tuple[str, str]]:
        """Record the value as defined; yield (name or type, message) for each fault."""
        if value in self.defined:
            yield "name", f"{self.found.name(value)} is defined twice"
        elif value.name and self.named.setdefault(value.name, value) is not value:
            yield "name", f"two values are called %{value.name}"
        self.defined.add(value)
        self.visible.add(value)
        defined.append(value)
        if value.type not in self._types:
            self._types[value.type] = list(type_faults(value.type))
        for message in self._types[value.type]:
            yield "type", message
        if value.sharding is not None:
            if self.function.spmd:
                yield "type", "values of a spmd function are local and have no sharding"
            for message in self.sharding(value.sharding, value.type):
                yield "type", message
            for axis in value.sharding.used() if self.manual else ():
                if any(manual.overlaps(axis) for manual in self.manual_axes()):
                    yield "type", f"values are local along {axis.name!r}, which is manual here"

    def sharding(self, sharding: Sharding, type: TensorType) -> list[str]:
        key = (sharding, type)
        if key not in self._shardings:
            self._shardings[key] = list(sharding_faults(sharding, type, self.meshes))
        return self._shardings[key]

    def axes(self, attr: Attr) -> Iterator[str]:
        """Yield a message for each mesh axis in an attribute that does not exist."""
        for axis in mesh_axes(attr):
            mesh = mesh_of(axis.name, tuple(self.meshes.values()))
            if mesh is None:
                yield f"no mesh has an axis called {axis.name!r}"
            else:
                yield from axis_faults(axis, mesh)

    def unseen(self, value: Value) -> str:
        """Return the reason why a value cannot be used at this position."""
        name = self.found.name(value)
        if value in self.defined:
            return f"{name} is defined in a block that has ended; let the block yield it"
        if value in self._everything:
            return f"{name} is used before it is defined"
        return f"{name} is not defined"

    def results(self) -> None:
        """Check that the requested shardings of the results fit the results."""
        function, returns = self.function, self.function.body.returns
        if len(function.results) != len(returns):
            self.found.at_head(
                f"@{function.name} returns {counted(len(returns), 'value')}, "
                f"but requests {counted(len(function.results), 'sharding')}"
            )
        for i, (value, sharding) in enumerate(zip(returns, function.results, strict=False)):
            if sharding is None:
                continue
            if function.spmd:
                self.found.at_head("results of a spmd function are local and have no sharding", i)
            for message in self.sharding(sharding, value.type):
                self.found.at_head(message, i)

    def interface(self) -> None:
        """Check that the values of a per-device function are shards of the global tensors."""
        function, spmd = self.function, self.function.spmd
        assert spmd is not None
        for noun, values, outer in (
            ("parameter", function.body.params, spmd.params),
            ("result", function.body.returns, spmd.results),
        ):
            if len(values) != len(outer):
                self.found.at_head(
                    f"@{function.name} has {counted(len(values), noun)}, "
                    f"but declares the global tensors of {len(outer)}"
                )
            for i, (value, whole) in enumerate(zip(values, outer, strict=False)):
                for message in self.shard(value, whole):
                    if noun == "result":
                        self.found.at_head(message, i)
                    else:
                        self.found.at_block(message, function.body, None, "params", i)

    def meetings(self) -> None:
        """Check that all devices execute the same collectives in the same order."""
        for found in divergences(self.function):
            message = found.told(self.found.name(found.decision), tuple(self.meshes.values()))
            self.found.at_op(message, found.collective)

    def shard(self, value: Value, outer: Global) -> Iterator[str]:
        """Yield a message if the value is not the local shard of the global tensor."""
        messages = [*type_faults(outer.type), *self.sharding(outer.sharding, outer.type)]
        yield from messages
        if messages:
            return
        local = outer.type.with_shape(outer.sharding.local_shape(outer.type.shape))
        if value.type != local:
            yield f"a shard of {self.found.printer.outer(outer)} is {local}, not {value.type}"

    @cached_property
    def _everything(self) -> set[Value]:
        """All values that the function defines, including those of nested blocks."""
        return {
            *self.function.body.params,
            *(v for op in self.function.body.walk() for v in op.results),
            *(v for op in self.function.body.walk() for b in op.blocks for v in b.params),
        }


def mesh_axes(attr: Attr) -> Iterator[Axis]:
    """Yield the mesh axes in an attribute, including those in nested tuples."""
    if isinstance(attr, Axis):
        yield attr
    for item in attr if isinstance(attr, tuple) else ():
        yield from mesh_axes(item)
