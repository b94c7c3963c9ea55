"""Gives operations one more loop: the part of vectorization that goes through one block.

Operations are visited in order. What they use has been replaced by then: by a value with the new
dimension in front, or by a copy without it. An operation that uses nothing with the dimension is
copied; any other follows its rule, or the handler of its control flow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from shardir.batching import Many, elementwise, repeated
from shardir.build import Builder, as_values, copied
from shardir.errors import VectorizeError
from shardir.ir import Op, Value
from shardir.placement import Axes, Axis

Handler = Callable[["Batcher", Op], Sequence[Value]]
"""Gives an operation with blocks, or one along the axis that is vectorized, the new dimension;
returns its results."""

Front = Callable[[Axes], Axes]
"""Which of the axes of a manual computation cut the new dimension."""


class Batcher:
    """Grows in `b`. `new` are the values that stand for those of the program, `heirs` the way back.
    `axis` is what collectives call the new dimension.

    Blocks inside this one share both; values have one definition, so they cannot be confused.
    """

    def __init__(
        self,
        b: Builder,
        size: int,
        handlers: Mapping[str, Handler],
        axis: str | None = None,
        new: dict[Value, Value] | None = None,
        heirs: dict[Value, Value] | None = None,
        front: Front | None = None,
    ) -> None:
        self.b = b
        self.size = size
        self.handlers = handlers
        self.axis = axis
        self.front = front
        self.new: dict[Value, Value] = {} if new is None else new
        self.heirs: dict[Value, Value] = {} if heirs is None else heirs

    def inner(self, pieces: int = 1) -> "Batcher":
        """The same for a block inside this one; `pieces`: where it has a piece of the batch."""
        size = self.size // pieces
        return Batcher(
            self.b.inner(), size, self.handlers, self.axis, self.new, self.heirs, self.front
        )

    def param(self, old: Value, batched: bool) -> Value:
        """A parameter that stands for a value, with the new dimension or without."""
        shape = (self.size, *old.type.shape) if batched else old.type.shape
        made = self.b.param(old.type.with_shape(shape), old.name)
        self.stand(made, old)
        return made

    def stand(self, made: Value, old: Value) -> None:
        """Let `made` stand for a value of the program."""
        self.new[old] = made
        self.heirs.setdefault(made, old)

    def get(self, value: Value) -> Value:
        """What stands for a value."""
        return self.new.get(value, value)

    def has(self, value: Value) -> bool:
        """Whether what stands for a value has the new dimension."""
        return self.get(value).type.rank > value.type.rank

    def whole(self, value: Value) -> Value:
        """What stands for a value, with the new dimension."""
        found = self.get(value)
        return found if self.has(value) else repeated(self.b, found, self.size)

    def run(self, ops: Sequence[Op]) -> None:
        """Append what stands for `ops`."""
        loc, why = self.b.loc, self.b.why
        for op in ops:
            self.b.loc, self.b.why = op.loc, op.why
            if any(self.has(value) for value in op.uses()) or self.is_along(op):
                for old, made in zip(op.results, self._through(op), strict=True):
                    self.stand(made, old)
            else:
                self._copy(op)
        self.b.loc, self.b.why = loc, why

    def _through(self, op: Op) -> Sequence[Value]:
        if op.name in self.handlers and (op.blocks or self.is_along(op)):
            return self.handlers[op.name](self, op)
        rule = op.spec.batch or (elementwise if op.spec.elementwise else None)
        if rule is None:
            what = f"%{op.results[0].name} = {op.name}" if op.results else op.name
            raise error(f"{what} cannot be done many times at once", op)
        many = Many(op, self.size, tuple(map(self.has, op.operands)))
        made = rule(self.b, many, *map(self.get, op.operands), **op.attrs)
        return as_values(made)

    def is_along(self, op: Op) -> bool:
        """Whether an operation, or one in its blocks, is along the axis that is vectorized."""
        if self.axis is None:
            return False
        if op.spec.spmd and any(axis.name == self.axis for axis in axes_of(op)):
            return True
        return any(self.is_along(inner) for block in op.blocks for inner in block.ops)

    def _copy(self, op: Op) -> None:
        made = copied(op, self.new, self.b.names)
        self.b.append(made)
        for old in _defined(op):
            self.heirs[self.new[old]] = old


def axes_of(op: Op) -> Iterator[Axis]:
    """The axes that an operation is along."""
    for attribute in ("axes", "source", "target"):
        yield from op.attrs.get(attribute, ())


def _defined(op: Op) -> list[Value]:
    """What an operation and its blocks define."""
    found = list(op.results)
    for block in op.blocks:
        found += block.params
        for inner in block.ops:
            found += _defined(inner)
    return found


def error(message: str, op: Op) -> VectorizeError:
    """A `VectorizeError` that says which line of the user's program it is about."""
    return VectorizeError(f"{message}\n --> {op.loc}" if op.loc else message)
