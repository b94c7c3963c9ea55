"""How an operation gets one more loop around it.

`vectorize` puts one dimension in front of some values. An operation that uses such a value becomes
the same operation over one more loop, which walks the first dimension of everything that has it.
For elementwise operations that follows from their factors. Where attributes name dimensions, the
operation declares which do (`further`), and where more has to happen it declares a rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardir.types import TensorType

if TYPE_CHECKING:
    from shardir.ir import Op, Value

Rule = Callable[..., Any]
"""What an operation declares as its `batch`: (builder, many, operands..., attributes) -> the
result or a tuple of them. `many` is a `Many`; operands have the new dimension or not, as it says.
A result that does not depend on any operand that has it may come without it."""


@dataclass(frozen=True)
class Many:
    """One application of an operation that is to be done `size` times.

    `op` is the operation without the new dimension; `batched` says which operands have it.
    """

    op: "Op"
    size: int
    batched: tuple[bool, ...]

    def type(self, type: TensorType) -> TensorType:
        """The type with the new dimension."""
        return type.with_shape((self.size, *type.shape))

    @property
    def results(self) -> tuple[TensorType, ...]:
        """The types of the results with the new dimension."""
        return tuple(self.type(value.type) for value in self.op.results)

    @property
    def stated(self) -> Any:
        """The result type or types, as `Builder.emit` takes them."""
        results = self.results
        return results[0] if len(results) == 1 else results

    def all(self, b: Any, operands: Sequence["Value"]) -> tuple["Value", ...]:
        """The operands, each with the new dimension."""
        pairs = zip(operands, self.batched, strict=True)
        return tuple(x if batched else repeated(b, x, self.size) for x, batched in pairs)


def repeated(b: Any, x: "Value", size: int) -> "Value":
    """`x` with a new dimension in front along which it repeats."""
    why, b.why = b.why, "one for all of the batch"
    type = x.type.with_shape((size, *x.type.shape))
    made: Value = b.broadcast(x, dims=tuple(range(1, type.rank)), result=type)
    b.why = why
    return made


def beside(b: Any, x: "Value", type: TensorType) -> "Value":
    """`x`, one element for each of the new dimension, repeated to `type` along all the others."""
    if x.type.shape == type.shape:
        return x
    made: Value = b.broadcast(x, dims=(0,), result=type.with_dtype(x.type.dtype))
    return made


def elementwise(b: Any, many: Many, *operands: "Value", **attrs: Any) -> Any:
    """The rule of an operation whose loops walk all operands alike.

    Operands of rank 0 that serve a whole tensor stay as they are, unless they differ.
    """
    result = many.results[0]
    given = []
    for x, old, batched in zip(operands, many.op.operands, many.batched, strict=True):
        if old.type.shape == result.shape[1:]:
            given.append(x if batched else repeated(b, x, many.size))
        else:
            given.append(beside(b, x, result) if batched else x)
    return b.emit(many.op.spec, *given, result=many.stated, **attrs)


def further(*names: str, **ahead: Any) -> Rule:
    """The rule of an operation that runs over one more dimension of all operands and results.

    The attributes `names` hold numbers of dimensions, which count one further. Those of `ahead`
    have an entry for each dimension, and get that one for the new dimension.
    """

    def rule(b: Any, many: Many, *operands: "Value", **attrs: Any) -> Any:
        for name in names:
            if name in attrs:
                attrs[name] = shifted(attrs[name])
        for name, entry in ahead.items():
            attrs[name] = (entry, *attrs[name])
        return b.emit(many.op.spec, *many.all(b, operands), result=many.stated, **attrs)

    return rule


def shifted(dims: Any) -> Any:
    """A number of a dimension, or several, counted one further."""
    return dims + 1 if isinstance(dims, int) else tuple(dim + 1 for dim in dims)
