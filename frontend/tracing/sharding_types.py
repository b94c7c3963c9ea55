"""The shardings in the types of traced values, on meshes with axes of type `AxisType.Explicit`.

A program whose arguments or mesh have Explicit axes owns one `ShardingTypes`. Each operation that
is appended to the program gets the types of its results from those of its operands
(`sharding_type_rules`). When the trace ends, `state` writes the types into the program as shardings
of values, which propagation and partitioning preserve.

A value without a type adopts the sharding of the values it is combined with: constants, and
operations on them. A value is *free* if its type is an assumption that the compiler may change: the
result of an ambiguous operation before `out_sharding` states its sharding, and intermediate values
of derivatives.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from shardir import ops
from shardir.errors import ShardirError
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.config import config
from shardir.frontend.errors import ShardingTypeError
from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.mesh import Mesh, current_mesh
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.mesh_scope import MeshScope
from shardir.frontend.tracing.partial_sum_rules import check_unreduced
from shardir.frontend.tracing.possible_sums import PossibleSums
from shardir.frontend.tracing.sharding_type import (
    ShardingType,
    TypeConflictError,
    format_type,
    replicated_type,
)
from shardir.frontend.tracing.sharding_type_choice import choose_results
from shardir.frontend.tracing.sharding_type_rules import check_cases, infer_results
from shardir.frontend.tracing.stated_types import StatedType, on_outer_mesh, state_types
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.ir.module import Block, Op, Value
from shardir.ir.sharding import Axis
from shardir.passes.resharding.explanations import LENIENT_CHOICE


class ShardingTypes:
    """The sharding types of the values of one traced program.

    They are on one mesh, except in blocks of `use_abstract_mesh` with other axes.
    """

    def __init__(self, program: TracedProgram, mesh: Mesh) -> None:
        self.program = program
        self._scope = MeshScope(mesh, frozenset(mesh.explicit_axes))
        self._scopes = [self._scope]
        """All scopes, that of the program first."""
        self._scope_of: dict[Value, MeshScope] = {}
        """The scopes of values that are not on the mesh of the program."""
        self._types: dict[Value, ShardingType] = {}
        self._free: set[Value] = set()
        self._unstated: set[Value] = set()
        """Results of operations on partial sums: the program does not state their shardings."""
        self._open: set[Value] = set()
        """Values inside of `auto_axes` for some axes: the compiler may use these."""
        self._reasons: dict[Value, str] = {}
        self._sums = PossibleSums()
        self._num_permissions = 0
        self.is_lenient = config.explicit_sharding == "lenient"
        self.is_stated = False
        """True if a sharding with Explicit axes occurs in the program."""

    @property
    def mesh(self) -> Mesh:
        """The mesh of new values at this line."""
        return self._scope.mesh

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis of `mesh`."""
        return self._scope.mesh.shape

    @property
    def explicit_axes(self) -> frozenset[str]:
        """The axes of `mesh` that types contain, except in blocks where they are Auto."""
        return self._scope.explicit_axes

    # Types of values

    def find(self, value: Value) -> ShardingType | None:
        """Return the type of a value; `None` if it adopts the sharding of other values."""
        # A value may have two identities until its name is final.
        own = self._identity(value)
        type, scope = self._types.get(own), self._find_scope(own)
        if type is None or not scope.auto:
            return type
        return None if scope.is_auto else scope.without_auto_axes(type)

    def set(self, value: Value, type: ShardingType, scope: MeshScope | None = None) -> None:
        """Set the type of a value, on the mesh of `scope`, by default that of this line."""
        own, scope = self._identity(value), scope or self._scope
        self._types[own] = type
        if scope is self._scopes[0]:
            self._scope_of.pop(own, None)
        else:
            self._scope_of[own] = scope

    def _find_scope(self, own: Value) -> MeshScope:
        return self._scope_of.get(own, self._scopes[0])

    def is_untyped(self, value: Value) -> bool:
        """Return whether a value adopts the sharding of other values."""
        return self.find(value) is None

    def is_free(self, value: Value) -> bool:
        """Return whether the type of a value is an assumption, or the program does not state it."""
        own = self._identity(value)
        return own in self._free or own in self._unstated

    def result_sharding(self, value: Value) -> NamedSharding | None:
        """Return the sharding of a result of the program; `None` where the compiler chooses it.

        Raises `ShardingTypeError` for partial sums on a mesh with Auto axes.
        """
        sharding = self.sharding_of(value) if self.is_stated else None
        if AxisType.Auto not in self.mesh.axis_types:
            return sharding
        if sharding is not None and sharding.spec.unreduced:
            raise ShardingTypeError(
                with_location(
                    f"{self.program.name} returns partial sums, {sharding.spec}, on a mesh with "
                    "axes of type Auto; reshard them first (sharding.reshard), or use a mesh of "
                    "Explicit axes only"
                )
            )
        return None

    def abstract(self, value: Value, weak: bool) -> AbstractValue:
        """Return the abstract value, with the sharding in its type if an axis shards it."""
        type, scope = self.find(value), self._find_scope(self._identity(value))
        # The mesh of a value is a part of its type where it is not that of the line.
        if type is None or (type.is_replicated and scope is self._scope):
            return AbstractValue(value.type, weak)
        return AbstractValue(value.type, weak, scope.named_sharding(type))

    def from_sharding(self, sharding: object, rank: int) -> ShardingType:
        """Return the type that a public sharding states; raises `ShardingTypeError` for another
        mesh."""
        if isinstance(sharding, NamedSharding):
            return self.check_mesh(sharding).from_sharding(sharding, rank)
        return replicated_type(rank)

    def check_mesh(self, sharding: object) -> MeshScope:
        """Return the scope of the mesh of a public sharding; raises `ShardingTypeError` for a mesh
        of other devices."""
        if not isinstance(sharding, NamedSharding):
            return self._scope
        for scope in (self._scope, *self._scopes):
            if scope.has_axes_of(sharding.mesh):
                return scope
        if self._scope.has_devices_of(sharding.mesh):
            self._scopes.append(MeshScope(sharding.mesh, frozenset(sharding.mesh.explicit_axes)))
            return self._scopes[-1]
        raise ShardingTypeError(
            with_location(
                f"{sharding} is used in a program on {self.mesh!r}; all arrays on meshes with "
                "Explicit axes must use the same devices; move one with device_put before the call"
            )
        )

    def declare(self, value: Value, sharding: object) -> None:
        """Set the type of a parameter or of a constrained value from a public sharding."""
        self.is_stated |= sharding is not None
        scope = self.check_mesh(sharding)
        self.set(value, self.from_sharding(sharding, value.type.rank), scope)

    def sharding_of(self, value: Value) -> NamedSharding | None:
        """Return the sharding in the type of a value; `None` where the compiler determines it."""
        own = self._identity(value)
        scope = self._find_scope(own) if own in self._types else self._scope
        if scope.is_auto:
            return None
        return scope.named_sharding(self.find(value) or replicated_type(value.type.rank))

    # Conflicts

    @property
    def resolves_conflicts(self) -> bool:
        """True if a conflict is resolved instead of refused at this line."""
        return self.is_lenient or self._num_permissions > 0

    def refuse(self, message: str, kind: type[ShardirError] = ShardingTypeError) -> None:
        """Raise an error of class `kind`, unless conflicts are permitted or resolved here."""
        if not self.resolves_conflicts:
            raise kind(with_location(message))

    def explain(self, value: Value, reason: str) -> None:
        """State in `why` the conflict that a lenient choice of the sharding of a value settles."""
        if self.is_lenient and not self._num_permissions:
            chosen = format_type(value.type, self.find(value))
            # The remedy is of no interest where the conflict is resolved.
            self._reasons[value] = f"{LENIENT_CHOICE} chose {chosen}: {reason.partition('; ')[0]}"

    # Modes

    @contextmanager
    def permit_conflicts(self) -> Iterator[None]:
        """Accept ambiguous operations inside the block; the caller states the sharding of its
        result."""
        self._num_permissions += 1
        try:
            yield
        finally:
            self._num_permissions -= 1

    def use_auto_axes(self, axes: Iterable[str] | None = None) -> AbstractContextManager[None]:
        """Let the compiler determine shardings along `axes`, by default all, inside the block."""
        return self._use_auto(self._scope.auto | self._chosen_axes(axes))

    def leave_explicit_mode(self) -> None:
        """Let the compiler determine shardings everywhere, except inside of `explicit_axes`."""
        self._scope.auto = self.explicit_axes

    @contextmanager
    def use_explicit_axes(self, axes: Iterable[str] | None = None) -> Iterator[None]:
        """Give values shardings along `axes`, by default all, in their types inside the block."""
        chosen, scope = frozenset(self.mesh.axis_names if axes is None else axes), self._scope
        # Outside of the block, axes that were Auto before remain so.
        scope.auto |= chosen - scope.explicit_axes
        scope.explicit_axes |= chosen
        with self._use_auto(scope.auto - chosen):
            yield

    @contextmanager
    def use_axis_types(self, mesh: Mesh) -> Iterator[None]:
        """Give values shardings along the Explicit axes of `mesh` in their types inside the
        block; `mesh` has the devices of the program."""
        before = self._scope
        found = [scope for scope in self._scopes if scope.has_axes_of(mesh)]
        if not found:
            found = [MeshScope(mesh, frozenset(mesh.explicit_axes))]
            self._scopes += found
        self._scope = found[0]
        try:
            with self.use_explicit_axes(mesh.explicit_axes), self.use_auto_axes(mesh.auto_axes):
                yield
        finally:
            self._scope = before

    def _chosen_axes(self, axes: Iterable[str] | None) -> frozenset[str]:
        return self.explicit_axes if axes is None else frozenset(axes)

    @contextmanager
    def _use_auto(self, axes: frozenset[str]) -> Iterator[None]:
        scope = self._scope
        before, scope.auto = scope.auto, axes
        try:
            yield
        finally:
            scope.auto = before

    # Inference

    def infer(self, op: Op) -> None:
        """Set the types of the results of an operation that the user's program appends.

        Raises `ShardingTypeError` for a conflict, unless it is permitted.
        """
        before, self._scope = self._scope, self._scope_of_op(op)
        try:
            self._infer(op)
        finally:
            self._scope = before

    def _scope_of_op(self, op: Op) -> MeshScope:
        """Return the scope of an operation: that of the entered mesh, if a value has been on it,
        otherwise that of its operands."""
        entered = current_mesh()
        for scope in (self._scope, *self._scopes):
            if entered is not None and scope.has_axes_of(entered):
                return scope
        owns = map(self._identity, op.operands)
        scopes = {self._find_scope(own) for own in owns if own in self._types}
        return scopes.pop() if len(scopes) == 1 else self._scope

    def _infer(self, op: Op) -> None:
        if self._scope.is_auto:
            return
        if op.blocks:
            for value, (type, scope) in zip(op.results, self._results_of_blocks(op), strict=True):
                if type is not None:
                    self._set_result(value, type, False, scope)
            return
        if op.spec is ops.sharding_constraint:
            self._infer_constraint(op)
            return
        operands, reason = self._find_operands(op)
        if op.spec is ops.optimization_barrier:
            self._set_results(op, operands)
            return
        is_free = any(self._identity(value) in self._free for value in op.operands)
        is_free = is_free or (bool(reason) and self._num_permissions > 0)
        try:
            results = infer_results(op, operands, self.sizes)
            if not self.resolves_conflicts:
                check_unreduced(op, operands)
        except TypeConflictError as conflict:
            results = [*choose_results(op, operands, self.sizes)]
            if self._num_permissions or is_free:
                is_free = True
            elif self.is_lenient:
                self._set_results(op, results)
                for value in op.results:
                    self.explain(value, str(conflict))
            else:
                raise ShardingTypeError(with_location(str(conflict))) from None
        if any(type is not None and type.unreduced for type in results):
            self._unstated.update(op.results)
        self._set_results(op, results, is_free)
        for value in op.results if reason else ():
            self.explain(value, reason)
        self._sums.record(op, self.program.unnamed_values, operands, self.sizes)

    def _find_operands(self, op: Op) -> tuple[list[ShardingType | None], str]:
        """Return the types of the operands on the mesh of this line, and why one was converted.

        Raises `ShardingTypeError` for one on another mesh, unless conflicts are resolved here.
        """
        types: list[ShardingType | None] = []
        reason = ""
        for i, value in enumerate(op.operands):
            own = self._identity(value)
            type, scope = self.find(value), self._find_scope(own)
            if type is not None and scope is not self._scope:
                reason = (
                    f"operand {i} of {op.name}, {format_type(value.type, type)}, is on "
                    f"{scope.mesh!r}, and the operation is on {self.mesh!r}; reshard it to this "
                    "mesh first (sharding.reshard)"
                )
                self.refuse(reason)
                type = self._scope.convert(type, scope)
            types.append(type)
        return types, reason

    def _set_results(
        self, op: Op, types: Sequence[ShardingType | None], is_free: bool = False
    ) -> None:
        for value, type in zip(op.results, types, strict=True):
            if type is not None:
                self._set_result(value, type, is_free, self._scope)

    def _set_result(
        self, value: Value, type: ShardingType, is_free: bool, scope: MeshScope
    ) -> None:
        self.set(value, type, scope)
        if is_free:
            self._free.add(value)
        if scope.auto & scope.explicit_axes:
            self._open.add(value)

    def check_out_sharding(self, value: Value, requested: object) -> None:
        """Refuse an `out_sharding` of an operation that changes its unreduced or reduced axes."""
        if isinstance(requested, NamedSharding) and not self.resolves_conflicts:
            own, type = self._identity(value), self.find(value)
            self._sums.check_out_spec(own, type, requested.spec, self.explicit_axes)

    def check_cases(self, operands: Sequence[Value]) -> None:
        """Refuse a condition and cases of `select` with different shardings."""
        if not any(self.is_free(value) for value in operands):
            try:
                check_cases([x.type for x in operands], [self.find(value) for value in operands])
            except TypeConflictError as conflict:
                self.refuse(str(conflict))

    def infer_block(self, block_ops: Sequence[Op]) -> None:
        """Set the types in a block that a transformation appends; conflicts leave values free."""
        if self._scope.is_auto:
            return
        with self.permit_conflicts():
            for op in block_ops:
                if op.blocks and op.spec is not ops.manual_computation:
                    self._infer_inner_blocks(op)
                if not all(self._identity(value) in self._types for value in op.results):
                    self.infer(op)

    def _identity(self, value: Value) -> Value:
        """Return the value under which the types are stored."""
        return self.program.unnamed_values.get(value, value)

    def _infer_inner_blocks(self, op: Op) -> None:
        for block in op.blocks if op.spec in (ops.while_, ops.scan, ops.case) else op.blocks[:1]:
            for i, (param, value) in enumerate(zip(block.params, op.operands, strict=False)):
                type = self.find(value)
                if type is None:
                    continue
                if op.spec is ops.scan and i >= op.attrs["carries"]:
                    type = replace(type, dims=type.dims[1:])
                self.set(param, type, self._find_scope(self._identity(value)))
            self.infer_block(block.ops)

    def _results_of_blocks(self, op: Op) -> list[tuple[ShardingType | None, MeshScope]]:
        """Return the types of the results of an operation with blocks, and their scopes."""
        if op.spec is ops.manual_computation:
            returns = op.blocks[0].returns
            pairs = zip(op.attrs["out_axes"], returns, strict=True)
            return [self._manual_type(axes, self.find(value)) for axes, value in pairs]
        if op.spec.edges is None:
            return [(None, self._scope)] * len(op.results)
        block = op.blocks[-1] if op.spec is ops.while_ else op.blocks[0]
        types = [self.find(value) for value in block.returns]
        if op.spec is ops.scan:
            count = op.attrs["carries"]
            types[count:] = [
                None if type is None else replace(type, dims=((), *type.dims))
                for type in types[count:]
            ]
        scopes = [self._find_scope(self._identity(value)) for value in block.returns]
        return list(zip(types, scopes, strict=True))

    def _manual_type(
        self, out_axes: Sequence[Sequence[Axis]], inner: ShardingType | None
    ) -> tuple[ShardingType, MeshScope]:
        """Return the type and the scope of a global result of a manual computation; `inner` is the
        type of a shard."""
        requested = list(self.program.requested_shardings)
        dims, scope = [], self._scope
        for axes in out_axes:
            names = []
            for axis in axes:
                number, _, position = axis.name[1:].partition(".")
                sharding, _ = requested[int(number)]
                assert isinstance(sharding, NamedSharding)
                names.append(sharding.mesh.axis_names[int(position)])
                scope = self.check_mesh(sharding)
            dims.append(tuple(name for name in names if name in scope.explicit_axes))
        if inner is not None:
            dims = [(*outer, *axes) for outer, axes in zip(dims, inner.dims, strict=True)]
        return ShardingType(tuple(dims)), scope

    def _infer_constraint(self, op: Op) -> None:
        """Set the type of a constrained value; open dimensions keep the axes of the operand."""
        token, before = op.result.sharding, self.find(op.operands[0])
        before = before or replicated_type(op.result.type.rank)
        if token is None:
            self.set(op.result, before)
            return
        sharding, rank = list(self.program.requested_shardings)[int(token.mesh[1:])]
        scope = self._scope
        if isinstance(sharding, NamedSharding) and sharding.has_explicit_axes:
            scope = self.check_mesh(sharding)
        if not isinstance(sharding, NamedSharding) or not scope.has_axes_of(sharding.mesh):
            self._set_results(op, [before], True)
            return
        if scope is not self._find_scope(self._identity(op.operands[0])):
            before = replicated_type(op.result.type.rank)
        stated = scope.from_sharding(sharding, rank)
        if not token.unreduced:  # Cotangents are not partial sums.
            sizes = scope.mesh.shape
            single = frozenset(axis for axis in stated.unreduced if sizes[axis] == 1)
            stated = replace(stated, unreduced=single)
        if rank == op.result.type.rank:
            self.set(op.result, stated, scope)
            return
        dims: list[tuple[str, ...]] = []
        for i, dim in enumerate(token.dims):
            if dim.open:
                used = {a for d in token.dims for n in d.axes for a in stated.dims[int(n.name)]}
                dims.append(() if used.intersection(before.dims[i]) else before.dims[i])
            else:
                axes = tuple(a for part in dim.axes for a in stated.dims[int(part.name)])
                dims.append(axes)
        self.set(op.result, replace(stated, dims=tuple(dims)), scope)

    # Statement in the program

    def state(self, block: Block) -> Block:
        """Return the block with the types as shardings of the results of operations, and with the
        reasons of lenient choices."""
        return state_types(block, self.program, self._stated_type, self._reasons)

    def _stated_type(self, value: Value) -> StatedType | None:
        """Return the type that the program states for a value, if it states one."""
        type = self._types.get(value)
        if type is None or value in self._free or value in self._unstated:
            return None
        return StatedType(type, self._find_scope(value).mesh, value in self._open)

    def requested_shardings(self) -> tuple[tuple[UserSharding, int], ...]:
        """Return the requested shardings of the program on the mesh outside of it."""
        outer = current_mesh()
        if outer is None or outer.shape != self.sizes:
            outer = self.mesh
        return tuple((on_outer_mesh(s, outer), n) for s, n in self.program.requested_shardings)
