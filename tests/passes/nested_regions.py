"""Random programs with nested loops and branches."""

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.module import Block, Function, Value
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType

VECTOR = TensorType((3,), "f64")
STACK = TensorType((4, 3), "f64")
SCALAR = TensorType((), "f64")
COUNT = TensorType((), "i32")


class Programs:
    """Generates nested blocks at random; `depth` bounds the nesting."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def function(self) -> Function:
        b = Builder()
        params = [b.param(VECTOR, "x"), b.param(VECTOR, "y"), b.param(STACK, "s")]
        known = self.grow(b, params[:2], params[2:], depth=2)
        returns = [known[-1], self.choose(known)]
        return Function("f", b.block(params, returns), (None, None))

    def choose(self, known: list[Value]) -> Value:
        """Choose a value; later values are more likely."""
        late = int(min(self.rng.geometric(0.3), len(known)))
        return known[-late]

    def grow(self, b: Builder, known: list[Value], stacks: list[Value], depth: int) -> list[Value]:
        known = list(known)
        for _ in range(int(self.rng.integers(2, 5))):
            kind = int(self.rng.integers(0, 7))
            x, y = self.choose(known), self.choose(known)
            if kind == 0:
                known.append(b.sin(x))
            elif kind == 1:
                known.append(b.mul(b.tanh(x), y))
            elif kind == 2:
                known.append(b.sub(y, b.logistic(x)))
            elif kind == 3:
                outer = b.dot(b.cos(x), y, dims="i,j->ij")
                known.append(b.sum(b.tanh(outer), dims=(0,)))
            elif depth and kind in (4, 5):
                known += self.scan(b, known, stacks, depth)
            elif depth:
                known += self.case(b, known, stacks, depth)
        return known

    def scan(self, b: Builder, known: list[Value], stacks: list[Value], depth: int) -> list[Value]:
        inits = [self.choose(known) for _ in range(int(self.rng.integers(1, 3)))]
        stacked = stacks[: int(self.rng.integers(0, len(stacks) + 1))]
        inner = b.inner()
        counter = inner.param(COUNT)
        carried = [inner.param(VECTOR) for _ in inits]
        slices = [inner.param(VECTOR) for _ in stacked]
        made = self.grow(inner, known + carried + slices, stacks, depth - 1)
        returns = [inner.tanh(self.choose(made)) for _ in inits]
        if self.rng.random() < 0.3:
            returns[0] = carried[-1]
        count = inner.add(counter, inner.full(1, COUNT))
        outs = [self.choose(made)]
        body = inner.block([counter, *carried, *slices], [count, *returns, *outs])
        results = b.emit(
            OPS["scan"],
            b.full(0, COUNT),
            *inits,
            *stacked,
            blocks=(body,),
            carries=1 + len(inits),
            length=4,
            reverse=bool(self.rng.random() < 0.5),
        )
        return [*results[1 : 1 + len(inits)], b.sum(results[-1], dims=(0,))]

    def case(self, b: Builder, known: list[Value], stacks: list[Value], depth: int) -> list[Value]:
        count = int(self.rng.integers(1, 4))

        def branch() -> Block:
            inner = b.inner()
            made = self.grow(inner, known, stacks, depth - 1)
            return inner.block([], [self.choose(made), self.choose(made)])

        if count == 2:
            total = b.sum(self.choose(known), dims=(0,))
            index = b.gt(total, b.full(0.1, SCALAR))
        else:
            index = b.full(int(self.rng.integers(-1, 4)), COUNT)
        return list(b.emit(OPS["case"], index, blocks=tuple(branch() for _ in range(count))))


def arguments(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=type.shape) for type in (VECTOR, VECTOR, STACK)]
