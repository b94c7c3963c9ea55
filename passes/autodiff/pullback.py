"""Reverse mode through one block: from cotangents of results to cotangents of operands.

Operations are visited from last to first. Each takes the cotangents of its results, which are
complete by then, and its vjp rule adds to the cotangents of its operands. A missing cotangent is
zero and costs nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from shardir.errors import DifferentiateError
from shardir.ir.builder import Builder
from shardir.ir.module import Op, Value
from shardir.ir.operation import missing_rule_hint
from shardir.passes.autodiff.phases import GRADIENT_WHY

Cotangents = tuple[Value | None, ...]
"""Cotangents of the results of an operation; `None` is zero."""
Handler = Callable[["Pullback", Op, Cotangents], Op | tuple[Op, ...]]
"""Pulls cotangents back through an operation with blocks.

Returns the operation extended by the residuals it must pass on, or the operations that replace it.
"""


class Pullback:
    """Emits the backward operations of a block into the builder `b`.

    `active` are the values that have cotangents; `primal_of` maps a cotangent to the value that it
    belongs to, after which it can be named.
    """

    def __init__(
        self,
        b: Builder,
        active: set[Value],
        handlers: Mapping[str, Handler],
        primal_of: dict[Value, Value] | None = None,
    ) -> None:
        self.b = b
        self.active = active
        self.handlers = handlers
        self.primal_of_cotangent: dict[Value, Value] = {} if primal_of is None else primal_of
        self.cotangents: dict[Value, Value] = {}

    def inner(self) -> "Pullback":
        """Return the pullback of a nested block."""
        b = self.b.inner()
        b.why = self.b.why
        return Pullback(b, self.active, self.handlers, self.primal_of_cotangent)

    def accumulate(self, value: Value, cotangent: Value | None) -> None:
        """Add to the cotangent of a value; `None` is zero."""
        if cotangent is None or value not in self.active:
            return
        old_cotangent = self.cotangents.get(value)
        self.cotangents[value] = (
            cotangent if old_cotangent is None else self.b.add(old_cotangent, cotangent)
        )

    def pop_cotangent(self, value: Value) -> Value | None:
        """Return the complete cotangent of a value."""
        cotangent = self.cotangents.pop(value, None)
        if cotangent is not None:
            self.primal_of_cotangent.setdefault(cotangent, value)
        return cotangent

    def run(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        """Pull back through `ops`; return them extended by the residuals they must pass on."""
        forward: list[Op] = []
        loc, why = self.b.loc, self.b.why
        for op in reversed(ops):
            cotangents = tuple(map(self.pop_cotangent, op.results))
            if any(g is not None for g in cotangents):
                self.b.loc = op.loc
                self.b.why = f"{GRADIENT_WHY} %{op.results[0].name}"
                new_ops = self._through(op, cotangents)
                forward += reversed(new_ops) if isinstance(new_ops, tuple) else [new_ops]
            else:
                forward.append(op)
        self.b.loc, self.b.why = loc, why
        return tuple(reversed(forward))

    def _through(self, op: Op, cotangents: tuple[Value | None, ...]) -> Op | tuple[Op, ...]:
        if op.name in self.handlers:
            return self.handlers[op.name](self, op, cotangents)
        if op.spec.vjp is None:
            hint = missing_rule_hint(op, "vjp")
            raise error(f"%{op.results[0].name} = {op.name} has no derivative{hint}", op)
        g = cotangents[0] if len(op.results) == 1 else cotangents
        cotangents_of_operands = op.spec.vjp(
            self.b, g, *op.operands, *op.results, **op.rule_arguments
        )
        for value, cotangent in zip(op.operands, cotangents_of_operands, strict=True):
            if cotangent is not None and value in self.active and cotangent.type != value.type:
                raise error(
                    f"the vjp rule of {op.name} makes {cotangent.type} for "
                    f"%{value.name}: {value.type}",
                    op,
                )
            self.accumulate(value, cotangent)
        return op


def error(message: str, op: Op | None) -> DifferentiateError:
    """Return a `DifferentiateError` that names the line of the user's program."""
    return DifferentiateError(f"{message}\n --> {op.loc}" if op and op.loc else message)
