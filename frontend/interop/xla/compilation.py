"""Compilation of changed programs of JAX: sharding constraints inserted into lowered StableHLO.

The constraints are inserted by jaxlib's bindings of MLIR, so that the program is otherwise the one
that XLA received. The names of jaxlib that are used here are not public, therefore every use is in
this module, and `open_lowered` returns `None` if one of them is missing.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardir.cost.communication import sum_collectives
from shardir.frontend.interop.xla.source_expressions import SourceRange
from shardir.hlo.collectives import list_hlo_collectives
from shardir.hlo.module import HloModule
from shardir.hlo.parser import parse_hlo

if TYPE_CHECKING:
    import jax
    from jaxlib.mlir import ir

_RANGE = re.compile(r'"([^"]+)":(\d+):(\d+)(?: to (?:(\d+))?:(\d+))?')
_PROPAGATION = (
    "allow_spmd_sharding_propagation_to_output", "allow_spmd_sharding_propagation_to_parameters"
)  # fmt: skip
Spec = tuple[tuple[str, ...], ...]
"""The mesh axes of each dimension of an array."""


@dataclass(frozen=True, slots=True)
class ProgramValue:
    """An array in the lowered program: a result or an operand of an operation.

    `operation` is the index of the operation in program order, `index` that of the operand or
    result, `place` the range of the operation in the source, `name` the variable of an operand.
    """

    operation: int
    index: int
    is_result: bool
    shape: tuple[int, ...]
    place: SourceRange
    name: str | None = None
    parameter: int | None = None
    """The index of the parameter of the program, if the operand is one."""
    defined: SourceRange | None = None
    """The range at which an operand was computed."""
    is_derivative: bool = False
    """The operation belongs to the backward pass, whose locations are those of the forward pass."""


@dataclass(frozen=True, slots=True)
class AddedConstraint:
    """A constraint on a value; one on an operand applies to this operation only."""

    value: ProgramValue
    spec: Spec


@dataclass(frozen=True, slots=True)
class Cost:
    """The bytes that a device sends, and the number of floating-point operations that it executes
    (0 if XLA does not state it)."""

    sent: int
    flops: float


@dataclass
class LoweredProgram:
    """A program that JAX has lowered, as MLIR."""

    text: str
    context: "ir.Context"
    devices: "Sequence[jax.Device]"
    options: Mapping[str, str]
    mesh: str
    compiled: dict[tuple[AddedConstraint, ...], Cost | None] = field(default_factory=dict)
    values: list[ProgramValue] = field(default_factory=list)

    def cost(self, constraints: Sequence[AddedConstraint]) -> Cost | None:
        """Compile the program with constraints; return `None` if XLA refuses them."""
        key = tuple(constraints)
        if key not in self.compiled:
            try:
                self.compiled[key] = self._compile(self._insert(key))
            except (RuntimeError, ValueError, TypeError, AttributeError):
                self.compiled[key] = None  # jaxlib has no common class of such errors.
        return self.compiled[key]

    def _insert(self, constraints: Sequence[AddedConstraint]) -> str:
        from jaxlib.mlir import ir  # An optional dependency.

        with self.context, ir.Location.unknown():
            module = ir.Module.parse(self.text)
            operations = list(_walk(module.operation))
            for each in constraints:
                operation = operations[each.value.operation]
                index = each.value.index
                dims = ", ".join(
                    "{" + ", ".join(f'"{axis}"' for axis in axes) + "}" for axes in each.spec
                )
                sharding = ir.Attribute.parse(f"#sdy.sharding<@{self.mesh}, [{dims}]>")
                old = (operation.results if each.value.is_result else operation.operands)[index]
                if each.value.is_result:
                    point = ir.InsertionPoint.after(operation)
                else:
                    point = ir.InsertionPoint(operation)
                constraint = ir.Operation.create(
                    "sdy.sharding_constraint",
                    results=[old.type],
                    operands=[old],
                    attributes={"sharding": sharding},
                    ip=point,
                )
                if each.value.is_result:
                    old.replace_all_uses_except(constraint.results[0], constraint)
                else:
                    operation.operands[index] = constraint.results[0]
            return str(module.operation.get_asm(enable_debug_info=True))

    def _compile(self, text: str) -> Cost:
        import numpy as np
        from jax._src.lib import xla_client  # An optional dependency, as below.
        from jaxlib import _jax

        count = len(self.devices)
        options = _jax.CompileOptions()
        options.num_replicas, options.num_partitions = 1, count
        order = np.array([device.id for device in self.devices]).reshape(1, count)
        options.device_assignment = xla_client.DeviceAssignment.create(order)
        building = options.executable_build_options
        building.use_spmd_partitioning = building.use_shardy_partitioner = True
        for name in _PROPAGATION:
            if name in self.options:
                flags = [part == "true" for part in self.options[name].strip("{}").split(",")]
                setattr(building, name, flags)
        client = self.devices[0].client
        with _without_native_log():
            program = client.compile_and_load(text, _jax.DeviceList(tuple(self.devices)), options)
        module = parse_hlo(program.hlo_modules()[0].to_string())
        try:
            flops = float(program.cost_analysis().get("flops", 0))
        except (RuntimeError, AttributeError, TypeError):
            flops = 0.0
        return Cost(sum_collectives(list_hlo_collectives(module).rows).sent, flops)


@contextmanager
def _without_native_log() -> Iterator[None]:
    """Discard the warnings of XLA, which concern candidates and not the user's program.

    XLA writes them to the file descriptor of standard error.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    empty = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(empty, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(empty)


def open_lowered(lowered: "jax.stages.Lowered", compiled: HloModule) -> LoweredProgram | None:
    """Return a lowered program for compilations with other constraints.

    Returns `None` if jaxlib does not have the names that this module uses, or if it does not
    compile the unchanged program to the same collectives.
    """
    try:
        import jax  # Optional dependencies.
        from jaxlib.mlir import ir

        module = lowered.compiler_ir("stablehlo")
        devices = jax.devices()[: compiled.partition_count]
        if len(devices) < compiled.partition_count or compiled.replica_count != 1:
            return None
        text = module.operation.get_asm(enable_debug_info=True)
        mesh = re.search(r"sdy\.mesh @(\w+) = <\[", text)
        if mesh is None:
            return None
        program = LoweredProgram(text, module.context, devices, compiled.attributes, mesh[1])
        with module.context:
            program.values = list(_values(ir.Module.parse(text)))
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError):
        return None
    cost = program.cost([])
    sent = sum_collectives(list_hlo_collectives(compiled).rows).sent
    return program if cost is not None and cost.sent == sent else None


def _walk(operation: "ir.Operation") -> "Iterator[ir.Operation]":
    """Yield the operations in program order, except those in manual computations."""
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                if each.operation.name != "sdy.manual_computation":
                    yield each.operation
                    yield from _walk(each.operation)


def _place(operation: "ir.Operation") -> SourceRange | None:
    """Return the innermost range outside of installed packages."""
    for match in _RANGE.finditer(str(operation.location)):
        if "site-packages" not in match[1] and not match[1].startswith("<"):
            line, column = int(match[2]), int(match[3])
            return SourceRange(
                match[1], line, column, int(match[4] or line), int(match[5] or column)
            )
    return None


def _values(module: "ir.Module") -> Iterator[ProgramValue]:
    from jaxlib.mlir import ir  # An optional dependency.

    parameters: dict[ir.Value, tuple[int, str | None]] = {}
    for op in module.body.operations:
        if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value == "main":
            for number, argument in enumerate(op.operation.regions[0].blocks[0].arguments):
                named = re.search(r'loc\("(.*?)"\)', str(argument.location))
                parameters[argument] = number, named[1] if named else None
    for number, operation in enumerate(_walk(module.operation)):
        place = _place(operation)
        if place is None:
            continue
        is_derivative = "transpose(" in str(operation.location)
        for index, operand in enumerate(operation.operands):
            if not isinstance(operand.type, ir.RankedTensorType):
                continue
            shape = tuple(ir.RankedTensorType(operand.type).shape)
            if operand in parameters:
                parameter, name = parameters[operand]
                yield ProgramValue(
                    number, index, False, shape, place, name, parameter, None, is_derivative
                )
            elif not isinstance(operand.owner, ir.Block):
                defined = _place(operand.owner)
                if defined is not None and defined != place:
                    yield ProgramValue(
                        number, index, False, shape, place, None, None, defined, is_derivative
                    )
        for index, result in enumerate(operation.results):
            is_used_outside = any(
                _place(use.owner.operation) != place for use in result.uses
            )  # fmt: skip
            if isinstance(result.type, ir.RankedTensorType) and is_used_outside:
                shape = tuple(ir.RankedTensorType(result.type).shape)
                yield ProgramValue(number, index, True, shape, place, is_derivative=is_derivative)
