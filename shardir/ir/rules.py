"""The types of the rules of an operation, one protocol for each kind of rule.

Rules receive operands by position. They receive attributes by keyword: as the one argument
`attributes` if the declaration names an attribute class (`shardir.ir.attributes`), and otherwise
as one argument for each attribute. The number of operands differs between operations, so the
protocols leave it open; they state the parameters before the operands and the result.

`builder` is a `shardir.ir.builder.Builder`, whose module depends on this one. `result` is the type
that is stated for the result (`None` while an operation without a stated type is built; a tuple for
several results).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from shardir.ir.mesh import Mesh
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.factors import FactorRule

ValueT_co = TypeVar("ValueT_co", covariant=True)
"""The type of values, `shardir.ir.operation.Value`."""


class TypeRule(Protocol):
    """(operand types..., result, attributes; blocks if it has any) -> result type or types.

    Raises `TypeError` with a sentence that continues the operation's name.
    """

    def __call__(self, *types: Any, **options: Any) -> TensorType | Sequence[TensorType]: ...


class FactorRuleOf(Protocol):
    """(operand types..., result, attributes) -> the factor rule; `None`: cannot be sharded."""

    def __call__(self, *types: Any, **options: Any) -> FactorRule | None: ...


class ReferenceRule(Protocol):
    """(arrays..., result, attributes) -> array or tuple of arrays: the reference semantics."""

    def __call__(self, *arrays: Any, **options: Any) -> NumpyArray | tuple[NumpyArray, ...]: ...


class ExchangeRule(Protocol):
    """(mesh, shards, result, attributes) -> one array per device, for per-device operations that
    depend on the device or on other devices.

    `shards` holds the tuple of operands of every device in row-major order of the mesh. Devices
    with equal results receive the same array object.
    """

    def __call__(
        self, mesh: Mesh, shards: Sequence[tuple[NumpyArray, ...]], /, *_: Any, **options: Any
    ) -> Sequence[NumpyArray]: ...


class CotangentRule(Protocol[ValueT_co]):
    """(builder, cotangent, operands..., results..., attributes) -> cotangents of the operands,
    `None` where there is none.

    For several results, the cotangent is a tuple with `None` for unused ones.
    """

    def __call__(
        self, builder: Any, cotangent: Any, /, *values: Any, **options: Any
    ) -> tuple[ValueT_co | None, ...]: ...


class BatchRule(Protocol[ValueT_co]):
    """(builder, batching, operands..., attributes) -> the result or a tuple of results.

    `batching` is a `BatchedOp`, which states the operands that have the new dimension. A result
    that depends on no batched operand may lack the new dimension.
    """

    def __call__(
        self, builder: Any, batching: Any, /, *operands: Any, **options: Any
    ) -> ValueT_co | tuple[ValueT_co, ...]: ...


class LoweringRule(Protocol[ValueT_co]):
    """(builder, local, operands..., attributes) -> the local result, or a tuple of them.

    It appends the per-device operations; `local` is a `LocalOp` and the operands are local values.
    """

    def __call__(
        self, builder: Any, local: Any, /, *operands: Any, **options: Any
    ) -> ValueT_co | tuple[ValueT_co, ...]: ...


class FactorChoice(Protocol):
    """(rule, operand types..., result, attributes) -> some of the factors of the rule."""

    def __call__(self, rule: FactorRule, /, *types: Any, **options: Any) -> Iterable[int]: ...


class ReductionRule(Protocol):
    """(attributes) -> the reduction of results that are partial over sharded reduced factors."""

    def __call__(self, *_: Any, **options: Any) -> str: ...


class LinearityRule(Protocol):
    """(attributes) -> the groups of operands in which the operation is jointly linear."""

    def __call__(self, *_: Any, **options: Any) -> tuple[tuple[int, ...], ...]: ...
