"""Samplers of loops and branches."""

from shardir.frontend.random_programs.scope import DTYPES, INDEX, Scope, sampler
from shardir.ir.module import Value
from shardir.ir.types import TensorType


@sampler("while")
def _(s: Scope, name: str) -> None:
    carried = [s.tensor() for _ in range(s.integer(0, 2))]
    types = [INDEX, *(x.type for x in carried)]

    def condition(inner: Scope, values: list[Value]) -> list[Value]:
        limit = inner.b.full(inner.integer(0, 3), INDEX)
        return [inner.b.lt(values[0], limit)]

    def body(inner: Scope, values: list[Value]) -> list[Value]:
        inner.some()
        step = inner.b.add(values[0], inner.b.full(1, INDEX))
        return [step, *(inner.value(x.type) for x in values[1:])]

    start = s.emit("constant", value=0, result=INDEX)
    blocks = (s.block(types, condition), s.block(types, body))
    s.emit(name, start, *carried, blocks=blocks)


@sampler("scan")
def _(s: Scope, name: str) -> None:
    length = s.choose(1, 2, 4)
    carried = [s.tensor() for _ in range(s.integer(0, 2))]
    stacked = [
        s.value(TensorType((length, *t.shape), t.dtype))
        for t in (s.type(DTYPES, high=2) for _ in range(s.integer(0, 2)))
    ]

    def body(inner: Scope, values: list[Value]) -> list[Value]:
        inner.some()
        outs = [inner.tensor(high=2) for _ in range(inner.integer(0, 2))]
        return [*(inner.value(x.type) for x in carried), *outs]

    types = [x.type for x in carried] + [x.type.with_shape(x.type.shape[1:]) for x in stacked]
    given = {"reverse": s.flag()} if s.flag() else {}
    block = s.block(types, body)
    s.emit(name, *carried, *stacked, blocks=(block,), carries=len(carried), length=length, **given)


@sampler("case")
def _(s: Scope, name: str) -> None:
    index = s.value(TensorType((), s.choose("bool", "i32")))
    number = 2 if index.type.dtype == "bool" else s.integer(1, 3)
    types = [s.type(DTYPES) for _ in range(s.integer(0, 2))]

    def branch(inner: Scope, values: list[Value]) -> list[Value]:
        inner.some()
        return [inner.value(type) for type in types]

    blocks = tuple(s.block([], branch) for _ in range(number))
    s.emit(name, index, blocks=blocks)
