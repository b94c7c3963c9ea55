"""The verifier: checks the rules of the IR and reports every violation.

A pass may assume that its input verifies, and its output must verify. One walk finds all faults;
the report shows each with its line of text, the faulty part underlined, and its source location.
"""

from collections.abc import Iterator
from functools import cached_property

from shardir import ops
from shardir.errors import OperationTypeError, VerifyError, count_noun
from shardir.ir.builder import infer_types
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, GlobalTensor, Module, Op, Value
from shardir.ir.operation import Attr
from shardir.ir.sharding import Axes, Axis, Sharding, has_axis, missing_axis_fault
from shardir.ir.signature import check_call
from shardir.ir.types import TensorType
from shardir.ops.communication.async_collectives import find_start_misuses
from shardir.ops.control_flow.manual_computation import manual_computation
from shardir.text.printer import AXIS_ATTRIBUTES, find_mesh_with_axis, format_axis, print_mesh
from shardir.verify.diagnostics import Fault, Faults
from shardir.verify.divergence import find_divergences
from shardir.verify.well_formed import (
    find_attribute_faults,
    find_axis_faults,
    find_mesh_faults,
    find_sharding_faults,
    find_type_faults,
)

GLOBAL_ONLY = (ops.manual_computation, ops.reshard, ops.sharding_constraint)
"""Operations on shardings, which values of per-device programs do not have."""


def verify(module: Module) -> None:
    """Raise `VerifyError` with every fault of the module, if there is one."""
    faults = find_faults(module)
    if not faults:
        return
    if len(faults) == 1:
        raise VerifyError(str(faults[0]))
    raise VerifyError("\n\n".join([f"the module has {len(faults)} faults", *map(str, faults)]))


def find_faults(module: Module) -> list[Fault]:
    """Return every fault of the module in program order."""
    result: list[Fault] = []
    meshes: dict[str, Mesh] = {}
    for mesh in module.meshes:
        line = print_mesh(mesh)
        messages = list(find_mesh_faults(mesh))
        if mesh.name in meshes:
            messages.append(f"two meshes are called @{mesh.name}")
        result += [Fault(message, "", line, 0, len(line)) for message in messages]
        meshes.setdefault(mesh.name, mesh)
    names: set[str] = set()
    for function in module.functions:
        checker = _FunctionChecker(function, meshes)
        if function.name in names:
            line = f"func @{function.name}"
            message = f"two functions are called @{function.name}"
            result.append(Fault(message, function.name, line, 0, len(line)))
        names.add(function.name)
        checker.check()
        result += checker.found.faults
    return result


class _FunctionChecker:
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
        self.check_block(self.function.body, None)
        self.check_results()
        if self.function.spmd:
            self.check_interface()
            if not self.found.faults:
                self.check_collective_order()

    def check_block(self, block: Block, owner: Op | None) -> None:
        """Check a block; its values are visible to later operations of the block and to their
        blocks.
        """
        defined: list[Value] = []
        for i, param in enumerate(block.params):
            for _, message in self.record_definition(param, defined):
                self.found.add_at_block(message, block, owner, "params", i)
        for op in block.ops:
            self.check_op(op)
            for i, result in enumerate(op.results):
                for part, message in self.record_definition(result, defined):
                    self.found.add_at_op(
                        message, op, "results" if part == "name" else "types", i, result
                    )
        for op, message in find_start_misuses(block):
            self.found.add_at_op(message, op)
        for i, value in enumerate(block.returns):
            if value not in self.visible:
                self.found.add_at_block(self.explain_invisible(value), block, owner, "returns", i)
        self.visible.difference_update(defined)

    def check_op(self, op: Op) -> None:
        for i, value in enumerate(op.operands):
            if value not in self.visible:
                self.found.add_at_op(self.explain_invisible(value), op, "operands", i, value)
        for i, (name, attr) in enumerate(op.attrs.items()):
            for message in find_attribute_faults(attr):
                self.found.add_at_op(f"attribute {name!r} of {op.name} {message}", op, "attrs", i)
            if name in AXIS_ATTRIBUTES:
                for message in self.find_axis_faults(attr):
                    self.found.add_at_op(message, op, "attrs", i)
        if op.spec is manual_computation:
            self.check_manual_computation(op)
        elif op.spec is ops.call:
            self.check_isolated_blocks(op, "as a function has no other values")
        else:
            for block in op.blocks:
                self.check_block(block, op)
        self.check_types(op)
        spmd = self.function.spmd is not None
        if op.spec.spmd and not spmd:
            if not self.manual:
                self.found.add_at_op(
                    f"{op.name} is allowed only in an spmd function or a manual_computation; "
                    "partition the module first",
                    op,
                )
            for i, (name, attr) in enumerate(op.attrs.items()):
                for axis in mesh_axes(attr) if self.manual and name in AXIS_ATTRIBUTES else ():
                    if not any(manual_axis.contains(axis) for manual_axis in self.manual_axes()):
                        self.found.add_at_op(
                            f"{op.name} is along {self.format_axis(axis)}, which no "
                            "manual_computation around it has among its axes; they have "
                            f"{self.manual_names()}",
                            op, "attrs", i,
                        )  # fmt: skip
        if spmd and op.spec in GLOBAL_ONLY:
            self.found.add_at_op(
                f"{op.name} has no meaning in an spmd function, whose values are local", op
            )

    def check_manual_computation(self, op: Op) -> None:
        """Check a block without captures, whose values are local along the manual axes."""
        attr = list(op.attrs).index("axes") if "axes" in op.attrs else 0
        for axis in mesh_axes(op.attrs.get("axes")):
            if any(manual.overlaps(axis) for manual in self.manual_axes()):
                self.found.add_at_op(
                    f"{axis.name!r} is already manual in an enclosing manual_computation",
                    op,
                    "attrs",
                    attr,
                )
        self.check_one_mesh_has_manual_axes(op, attr)
        for i, value in enumerate(op.results):
            mesh = self.meshes.get(value.sharding.mesh) if value.sharding is not None else None
            if mesh is None or mesh.is_maximal:
                continue
            for axis in mesh_axes(op.attrs.get("axes")):
                if not has_axis(axis, mesh):
                    name = self.format_axis(axis) if axis.name in mesh.sizes else repr(axis.name)
                    self.found.add_at_op(
                        f"the sharding of {self.found.name_of(value)} is on the mesh "
                        f"@{mesh.name}, which lacks the manual axis {name}",
                        op, "types", i, value,
                    )  # fmt: skip
        self.check_no_partial_values(op)
        self.manual.append(op)
        self.check_isolated_blocks(op, "so that in_axes state how it is sharded")
        self.manual.pop()

    def check_one_mesh_has_manual_axes(self, op: Op, attr: int) -> None:
        """Check that one mesh has all axes of a manual computation, each of which some mesh has."""
        axes = tuple(mesh_axes(op.attrs.get("axes")))
        meshes = self.meshes.values()
        if any(all(has_axis(axis, mesh) for axis in axes) for mesh in meshes):
            return
        if all(any(has_axis(axis, mesh) for mesh in meshes) for axis in axes):
            names = ", ".join(map(self.format_axis, axes))
            self.found.add_at_op(
                f"no mesh has all axes of manual_computation ({names}); it runs on one mesh",
                op, "attrs", attr,
            )  # fmt: skip

    def check_isolated_blocks(self, op: Op, purpose: str) -> None:
        """Check blocks that must not use values of the blocks around them."""
        for i, block in enumerate(op.blocks):
            for value in block.captures():
                if value in self.visible:
                    self.found.add_at_op(
                        f"block {i} of {op.name} uses {self.found.name_of(value)} of the blocks "
                        f"around it; make it an operand, {purpose}",
                        op, value=value,
                    )  # fmt: skip
            self.check_block(block, op)

    def check_no_partial_values(self, op: Op) -> None:
        """Check that no operand or result is unreduced along a manual axis: the axes of operands
        and results state shards, not partial values.
        """
        axes = tuple(mesh_axes(op.attrs.get("axes")))
        for value in (*(param for block in op.blocks for param in block.params), *op.results):
            for axis in value.sharding.unreduced if value.sharding else ():
                if any(manual.overlaps(axis) for manual in axes):
                    self.found.add_at_op(
                        f"{self.found.name_of(value)} is unreduced along the manual axis "
                        f"{axis.name!r}; reshard an operand before the manual_computation, and "
                        "reduce a result in its body",
                        op, value=value,
                    )  # fmt: skip

    def manual_axes(self) -> Axes:
        """Return the axes of all enclosing manual computations."""
        return tuple(axis for op in self.manual for axis in mesh_axes(op.attrs.get("axes")))

    def manual_names(self) -> str:
        return ", ".join(map(self.format_axis, self.manual_axes())) or "none"

    def format_axis(self, axis: Axis) -> str:
        """Return the text of a mesh axis."""
        return format_axis(axis, find_mesh_with_axis(axis.name, tuple(self.meshes.values())))

    def check_types(self, op: Op) -> None:
        """Check that the type rule infers the stated result types."""
        stated = tuple(value.type for value in op.results)
        try:
            check_call(op.spec, len(op.operands), op.attrs, len(op.blocks))
            inferred = infer_types(
                op.spec,
                op.operands,
                stated[0] if len(stated) == 1 else stated,
                op.attrs,
                op.blocks,
            )
        except OperationTypeError as error:
            self.found.add_at_op(str(error), op)
            return
        # A type rule may raise any exception for values that it does not expect.
        except Exception as error:
            kind = type(error).__name__
            self.found.add_at_op(f"{op.name}: its type rule fails on this ({kind}: {error})", op)
            return
        if inferred == stated:
            return
        if len(inferred) != len(stated):
            self.found.add_at_op(
                f"{op.name} has {count_noun(len(inferred), 'result')}, not {len(stated)}", op
            )
            return
        for i, (want, got) in enumerate(zip(inferred, stated, strict=True)):
            if want != got:
                self.found.add_at_op(
                    f"the result of {op.name} is {want}, not {got}", op, "types", i
                )

    def record_definition(self, value: Value, defined: list[Value]) -> Iterator[tuple[str, str]]:
        """Record the value as defined; yield (name or type, message) for each fault."""
        if value in self.defined:
            yield "name", f"{self.found.name_of(value)} is defined twice"
        elif value.name and self.named.setdefault(value.name, value) is not value:
            yield "name", f"two values are called %{value.name}"
        self.defined.add(value)
        self.visible.add(value)
        defined.append(value)
        if value.type not in self._types:
            self._types[value.type] = list(find_type_faults(value.type))
        for message in self._types[value.type]:
            yield "type", message
        if value.sharding is not None:
            if self.function.spmd:
                yield "type", "values of an spmd function are local and have no sharding"
            for message in self.sharding(value.sharding, value.type):
                yield "type", message
            placed = (*value.sharding.used_axes(), *value.sharding.replicated)
            for axis in placed if self.manual else ():
                if any(manual.overlaps(axis) for manual in self.manual_axes()):
                    yield "type", f"values are local along {axis.name!r}, which is manual here"

    def sharding(self, sharding: Sharding, type: TensorType) -> list[str]:
        key = (sharding, type)
        if key not in self._shardings:
            self._shardings[key] = list(find_sharding_faults(sharding, type, self.meshes))
        return self._shardings[key]

    def find_axis_faults(self, attr: Attr) -> Iterator[str]:
        """Yield a message for each mesh axis in an attribute that does not exist."""
        for axis in mesh_axes(attr):
            faults = [
                list(find_axis_faults(axis, mesh))
                for mesh in self.axis_meshes
                if axis.name in mesh.sizes
            ]
            if not faults:
                yield self.find_missing_axis_fault(axis.name)
            elif all(faults):
                yield from faults[0]

    def find_missing_axis_fault(self, name: str) -> str:
        if any(name in mesh.sizes for mesh in self.meshes.values()):
            return missing_axis_fault(name, self.axis_meshes[0]) or ""
        return f"no mesh has an axis called {name!r}"

    @cached_property
    def axis_meshes(self) -> tuple[Mesh, ...]:
        """The meshes whose axes the attributes of the function may name: the mesh of a per-device
        function, if its parameters or results state it, and otherwise all.
        """
        spmd = self.function.spmd
        outer = (*spmd.params, *spmd.results) if spmd else ()
        names = {each.sharding.mesh for each in outer if each.sharding.mesh in self.meshes}
        return tuple(mesh for mesh in self.meshes.values() if not names or mesh.name in names)

    def explain_invisible(self, value: Value) -> str:
        """Return the reason why a value cannot be used at this position."""
        name = self.found.name_of(value)
        if value in self.defined:
            return f"{name} is defined in a block that has ended; let the block yield it"
        if value in self._everything:
            return f"{name} is used before it is defined"
        return f"{name} is not defined"

    def check_results(self) -> None:
        """Check that the requested shardings of the results fit the results."""
        function, returns = self.function, self.function.body.returns
        if len(function.result_shardings) != len(returns):
            self.found.add_at_signature(
                f"@{function.name} returns {count_noun(len(returns), 'value')}, "
                f"but requests {count_noun(len(function.result_shardings), 'sharding')}"
            )
        for i, (value, sharding) in enumerate(
            zip(returns, function.result_shardings, strict=False)
        ):
            if sharding is None:
                continue
            if function.spmd:
                self.found.add_at_signature(
                    "results of an spmd function are local and have no sharding", i
                )
            for message in self.sharding(sharding, value.type):
                self.found.add_at_signature(message, i)

    def check_interface(self) -> None:
        """Check that the values of a per-device function are shards of the global tensors."""
        function, spmd = self.function, self.function.spmd
        assert spmd is not None
        for noun, values, outer in (
            ("parameter", function.body.params, spmd.params),
            ("result", function.body.returns, spmd.results),
        ):
            if len(values) != len(outer):
                self.found.add_at_signature(
                    f"@{function.name} has {count_noun(len(values), noun)}, "
                    f"but declares the global tensors of {len(outer)}"
                )
            for i, (value, global_tensor) in enumerate(zip(values, outer, strict=False)):
                for message in self.find_shard_faults(value, global_tensor):
                    if noun == "result":
                        self.found.add_at_signature(message, i)
                    else:
                        self.found.add_at_block(message, function.body, None, "params", i)

    def check_collective_order(self) -> None:
        """Check that all devices execute the same collectives in the same order."""
        for divergence in find_divergences(self.function):
            message = divergence.message(
                self.found.name_of(divergence.predicate), tuple(self.meshes.values())
            )
            self.found.add_at_op(message, divergence.collective)

    def find_shard_faults(self, value: Value, outer: GlobalTensor) -> Iterator[str]:
        """Yield a message if the value is not the local shard of the global tensor."""
        messages = [*find_type_faults(outer.type), *self.sharding(outer.sharding, outer.type)]
        yield from messages
        if messages:
            return
        local = outer.type.with_shape(outer.sharding.local_shape(outer.type.shape))
        if value.type != local:
            yield f"a shard of {self.found.printer.global_type(outer)} is {local}, not {value.type}"

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
