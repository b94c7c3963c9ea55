"""The state that the traces of one program share: captured arrays, shardings, and value names.

A value is named after the variable that the user's line assigns it to; the last operation that one
expression emits gets the name. All others get numbers in program order when the outermost trace
ends. Values are unnamed objects until then.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from shardir.errors import ShardirError
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.errors import ShardingTypeError
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.ir.builder import UniqueNames
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Varying

if TYPE_CHECKING:
    from shardir.frontend.arrays.array import Array
    from shardir.frontend.tracing.concrete_values import ConcreteValues
    from shardir.frontend.tracing.tracer import Tracer


class ProgramTypes(Protocol):
    """The shardings in the types of the values of a program (`sharding_types.ShardingTypes`)."""

    is_stated: bool

    @property
    def mesh(self) -> Mesh: ...

    @property
    def resolves_conflicts(self) -> bool: ...

    def sharding_of(self, value: Value) -> NamedSharding | None: ...

    def refuse(self, message: str, kind: type[ShardirError] = ShardingTypeError) -> None: ...

    def explain(self, value: Value, reason: str) -> None: ...

    def abstract(self, value: Value, weak: bool) -> AbstractValue: ...

    def check_cases(self, operands: Sequence[Value]) -> None: ...

    def check_mesh(self, sharding: object) -> object: ...

    def check_out_sharding(self, value: Value, requested: object) -> None: ...

    def declare(self, value: Value, sharding: object) -> None: ...

    def infer(self, op: Op) -> None: ...

    def infer_block(self, block_ops: Sequence[Op]) -> None: ...

    def result_sharding(self, value: Value) -> NamedSharding | None: ...

    def is_untyped(self, value: Value) -> bool: ...

    def is_free(self, value: Value) -> bool: ...

    def permit_conflicts(self) -> AbstractContextManager[None]: ...

    def use_auto_axes(self, axes: Iterable[str] | None = None) -> AbstractContextManager[None]: ...

    def leave_explicit_mode(self) -> None: ...

    def use_explicit_axes(
        self, axes: Iterable[str] | None = None
    ) -> AbstractContextManager[None]: ...

    def use_axis_types(self, mesh: Mesh) -> AbstractContextManager[None]: ...

    def state(self, block: Block) -> Block: ...

    def requested_shardings(self) -> tuple[tuple[UserSharding, int], ...]: ...


class TracedProgram:
    """The state that the traces of one program share.

    `captured` are the captured arrays that became parameters. `requested_shardings` are the user's
    shardings (each for values of one rank), which `sharding_token` numbers. A temporary
    program (`is_temporary`) is traced for one call only, so it embeds no array as a constant: even
    small arrays are parameters.
    """

    def __init__(self, name: str, is_temporary: bool = False) -> None:
        self.name, self.is_temporary = name, is_temporary
        self.names = UniqueNames()
        self.name_hints: dict[Value, str] = {}
        self.captured: dict[int, tuple[Array, Tracer]] = {}
        self.internal_tracers: list[Tracer] = []
        """The tracers that may outlive their trace, because rules that are traced later and
        callers refer to them."""
        self.requested_shardings: dict[tuple[UserSharding, int], int] = {}
        self._last_call: object = None
        self._last_hinted: tuple[Value, ...] = ()
        self._named_values: dict[Value, Value] = {}
        self.unnamed_values: dict[Value, Value] = {}
        """Maps values with final names to the values that were recorded."""
        self.varying_axes: dict[Value, Varying] = {}
        """The manual axes along which values may vary, as far as they were inferred."""
        self.sharding_types: ProgramTypes | None = None
        """The shardings in types; `None` without a mesh with Explicit axes."""
        self.concrete_values: ConcreteValues | None = None
        """The elements of values; `None` if the arguments of the program are not known."""

    def add_name_hint(
        self, call: object, names: tuple[str, ...], results: tuple[Value, ...]
    ) -> None:
        """Name `results` after the variables that receive them, instead of earlier results of the
        call."""
        if call is not None and call is self._last_call:
            for value in self._last_hinted:
                self.name_hints.pop(value, None)
        self._last_call, self._last_hinted = call, ()
        if names and (len(names) == len(results) or len(names) == 1):
            self._last_hinted = results
            each = names if len(names) == len(results) else names * len(results)
            self.name_hints.update(zip(results, each, strict=True))

    def forget_frames(self) -> None:
        self._last_call, self._last_hinted = None, ()

    def named_value(self, value: Value) -> Value:
        """Return the value with its final name; a value that has a name is returned unchanged."""
        if value.name:
            return value
        result = self._named_values.get(value)
        if result is None:
            name = self.names.fresh(self.name_hints.get(value, ""))
            result = self._named_values[value] = Value(value.type, name, value.sharding)
            self.unnamed_values[result] = value
        return result

    def assign_name(self, value: Value, name: str) -> None:
        """Give a value this name, even if another value has it."""
        named = self._named_values[value] = Value(value.type, name, value.sharding)
        self.unnamed_values[named] = value

    def assign_operation_names(self, op: Op) -> None:
        """Assign names to the results of an operation and to all values in its blocks."""
        for value in op.results:
            self.named_value(value)
        for block in op.blocks:
            for value in block.params:
                self.named_value(value)
            for inner in block.ops:
                self.assign_operation_names(inner)

    def rename_block(self, block: Block) -> Block:
        """Return the block with final names for all values."""
        params = tuple(map(self.named_value, block.params))
        ops = []
        for op in block.ops:
            results = tuple(map(self.named_value, op.results))
            operands = tuple([self._renamed_value(v) for v in op.operands])
            blocks = tuple(map(self.rename_block, op.blocks))
            ops.append(Op(op.spec, operands, results, op.attrs, blocks, op.loc, op.why))
        return Block(params, tuple(ops), tuple([self._renamed_value(v) for v in block.returns]))

    def _renamed_value(self, value: Value) -> Value:
        return value if value.name else self._named_values.get(value, value)
