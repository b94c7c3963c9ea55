"""Forward mode through one block: from tangents of operands to tangents of results.

Operations are visited in order. Each is kept, followed by the operations that compute the tangents
of its results: by the jvp rule that it declares, or derived from its vjp. A vjp is linear in its
cotangent, and the transpose of the derivative; pulling tangents back through it transposes it
again, which gives the derivative (double transposition).
"""

from collections.abc import Callable, Mapping, Sequence

from shardir.ir.builder import Builder
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Tangents, missing_rule_hint
from shardir.ir.types import INEXACT
from shardir.op_rules.tangents import diagonal_tangent
from shardir.ops.elementwise.elementwise import zero_vjp
from shardir.passes.autodiff.activity import active_values
from shardir.passes.autodiff.pullback import Pullback, error
from shardir.passes.autodiff.reverse_control import HANDLERS as BACKWARDS

Handler = Callable[["Pushforward", Op], None]
"""Appends an operation with blocks that computes tangents too, and records them."""


class Pushforward:
    """Emits the operations of the program and of the tangents into the builder `b`.

    `tangents` holds the tangents of values so far, in all blocks; a value without one has a zero
    tangent. `kept` are the operations to keep even if nothing uses them.
    """

    def __init__(
        self,
        b: Builder,
        handlers: Mapping[str, Handler],
        tangents: dict[Value, Value] | None = None,
    ) -> None:
        self.b = b
        self.handlers = handlers
        self.tangents: dict[Value, Value] = {} if tangents is None else tangents
        self.kept: set[Op] = set()

    def inner(self) -> "Pushforward":
        """Return the pushforward of a nested block."""
        inner = Pushforward(self.b.inner(), self.handlers, self.tangents)
        inner.b.why = self.b.why
        return inner

    def get(self, value: Value) -> Value | None:
        """Return the tangent of a value; `None` is zero."""
        return self.tangents.get(value)

    def get_or_zeros(self, value: Value) -> Value:
        """Return the tangent of a value, materialized if it is zero."""
        tangent = self.get(value)
        return self.b.full(0, value.type) if tangent is None else tangent

    def set_tangent(self, value: Value, tangent: Value | None) -> None:
        """Set the tangent of a value."""
        if tangent is None:
            self.tangents.pop(value, None)
        else:
            self.tangents[value] = tangent

    def append(self, op: Op) -> None:
        """Append an operation of the program."""
        self.b.append(op)
        self.kept.add(op)

    def run(self, ops: Sequence[Op]) -> None:
        """Append `ops` and the operations that compute their tangents."""
        loc, why = self.b.loc, self.b.why
        for op in ops:
            has_tangent = any(self.get(value) is not None for value in op.uses())
            if has_tangent and op.name in self.handlers:
                self.b.loc, self.b.why = op.loc, op.why
                self.handlers[op.name](self, op)
                continue
            self.append(op)
            if any(value.type.dtype in INEXACT for value in op.results):
                self.b.loc, self.b.why = op.loc, f"tangent of %{op.results[0].name}"
                self._through(op)
        self.b.loc, self.b.why = loc, why

    def block(self, params: Sequence[Value], returns: Sequence[Value]) -> Block:
        """Return the block so far, without dead operations."""
        needed = set(returns)
        ops = []
        for op in reversed(self.b.ops):
            if op in self.kept or any(value in needed for value in op.results):
                ops.append(op)
                needed.update(op.uses())
        return Block(tuple(params), tuple(reversed(ops)), tuple(returns))

    def _through(self, op: Op) -> None:
        spec = op.spec
        # Empty operands have no tangent, although derivatives by them may be 0 / 0.
        tangents = [self.get(value) if value.type.size else None for value in op.operands]
        if spec.vjp is zero_vjp or not any(tangents):
            return
        result_tangents = None
        if spec.jvp is not None:
            result_tangents = spec.jvp(self.b, op, tangents)
        elif spec.elementwise and spec.vjp is not None:
            result_tangents = diagonal_tangent(self.b, op, tangents)
        if result_tangents is None:
            result_tangents = self._transpose_vjp(op, tangents)
        for value, tangent in zip(op.results, result_tangents, strict=True):
            if tangent is not None and tangent.type != value.type:
                raise error(
                    f"the jvp rule of {op.name} makes {tangent.type} for "
                    f"%{value.name}: {value.type}",
                    op,
                )
            self.set_tangent(value, tangent)

    def _transpose_vjp(self, op: Op, tangents: Tangents) -> Tangents:
        """Return the tangents of the results by transposing the vjp."""
        if op.spec.vjp is None:
            hint = missing_rule_hint(op, "vjp")
            raise error(f"%{op.results[0].name} = {op.name} has no derivative{hint}", op)
        b = self.b.inner()
        b.why = self.b.why
        stand_ins = [
            b.param(value.type) if value.type.dtype in INEXACT else None for value in op.results
        ]
        chosen = [value for value in stand_ins if value is not None]
        g = stand_ins[0] if len(stand_ins) == 1 else tuple(stand_ins)
        cotangents = op.spec.vjp(b, g, *op.operands, *op.results, **op.rule_arguments)
        active = active_values(Block(tuple(chosen), tuple(b.ops), ()), chosen)
        back = Pullback(b.inner(), active, BACKWARDS)
        for cotangent, tangent in zip(cotangents, tangents, strict=True):
            if cotangent is not None:
                back.accumulate(cotangent, tangent)
        forward = back.run(b.ops)
        for new_op in (*forward, *back.b.ops):
            self.b.append(
                Op(
                    new_op.spec,
                    new_op.operands,
                    new_op.results,
                    new_op.attrs,
                    new_op.blocks,
                    b.loc,
                    b.why,
                )
            )
        return [None if value is None else back.pop_cotangent(value) for value in stand_ins]
