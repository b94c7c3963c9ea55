"""`insert-explicit-reshards` inserts the reshards that the real Shardy inserts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

pytest.importorskip("jaxlib")

from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Value
from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.ir.sub_axes import append_axis
from shardir.ir.types import TensorType
from shardir.passes import InsertExplicitReshards
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.shardy.oracle import number_ops, run

PASS = "func.func(sdy-insert-explicit-reshards{enable-full-version=true})"
N = 96
"""Divisible by all that a few mesh axes can make of pieces."""
Draw = Callable[["Drawn"], Any]
DRAWS: dict[str, Draw] = {}


class Drawn:
    """One operation on randomly sharded values."""

    def __init__(self, random: Random, sizes: Sequence[int]) -> None:
        self.random, self.builder = random, Builder()
        count = random.randrange(1, 4)
        self.mesh = Mesh("mesh", tuple((name, random.choice(sizes)) for name in "abc"[:count]))
        self.params: list[Value] = []
        self.shape = tuple(self.size() for _ in range(random.randrange(1, 4)))
        self.dim = random.randrange(len(self.shape))

    def size(self) -> int:
        return self.random.choice((N, N, 2 * N, N // 2))

    def sharding(self, rank: int) -> Sharding:
        atoms: list[Axis] = []
        for name, size in self.mesh.axes:
            if self.random.random() < 0.3 and size > 3 and not size % 2:
                parts = (Axis(name, 1, 2), Axis(name, 2, size // 2))
                atoms += [part for part in parts if self.random.random() < 0.8]
            elif self.random.random() < 0.75:
                atoms.append(Axis.full(name, self.mesh))
        self.random.shuffle(atoms)
        dims: list[Axes] = [()] * rank
        for axis in atoms:
            dim = self.random.randrange(rank)
            dims[dim] = append_axis(dims[dim], axis)
        return Sharding.of("mesh", dims)

    def value(self, shape: Sequence[int] | None = None, dtype: str = "f32") -> Value:
        shape = self.shape if shape is None else tuple(shape)
        sharding = self.sharding(len(shape)) if shape else None
        value = Value(TensorType(tuple(shape), dtype), f"x{len(self.params)}", sharding)
        self.params.append(value)
        return value

    def along(self, value: int, other: int) -> tuple[int, ...]:
        """Return one size for the relevant dimension, and another for other dimensions."""
        return tuple(value if d == self.dim else other for d in range(len(self.shape)))

    def half(self) -> TensorType:
        shape = [n // 2 if d == self.dim else n for d, n in enumerate(self.shape)]
        return TensorType(tuple(shape), "f32")

    def module(self, kind: str) -> Module:
        made = DRAWS[kind](self)
        sharding = self.sharding(made.type.rank) if made.type.rank else None
        made = replace(made, sharding=sharding)
        op = replace(self.builder.ops[-1], results=(made,))
        body = Block(tuple(self.params), (op,), (made,))
        return Module((self.mesh,), (Function("main", body, (sharding,)),))


def draws(kind: str) -> Callable[[Draw], Draw]:
    def register(draw: Draw) -> Draw:
        DRAWS[kind] = draw
        return draw

    return register


DRAWS |= {
    "neg": lambda d: d.builder.neg(d.value()),
    "add": lambda d: d.builder.add(d.value(), d.value()),
    "select": lambda d: d.builder.select(d.value(dtype="bool"), d.value(), d.value()),
    "reverse": lambda d: d.builder.reverse(d.value(), dims=(d.dim,)),
    "sum": lambda d: d.builder.sum(d.value(), dims=(d.dim,)),
    "max": lambda d: d.builder.max(d.value(), dims=(d.dim,)),
    "sort": lambda d: d.builder.sort(d.value(), dim=d.dim, keys=1, stable=True),
    "cumsum": lambda d: d.builder.cumsum(d.value(), dim=d.dim, reverse=False),
    "concatenate": lambda d: d.builder.concatenate(d.value(), d.value(), dim=d.dim),
    "pad": lambda d: d.builder.pad(
        d.value(), d.value(()), low=d.along(N, 0), high=d.along(0, 0), interior=d.along(0, 0)
    ),
    "slice": lambda d: d.builder.slice(
        d.value(), starts=d.along(0, 0), strides=d.along(1, 1), result=d.half()
    ),
}  # fmt: skip


@draws("dot")
def _dot(drawn: Drawn) -> Any:
    m, k, n = drawn.size(), drawn.size(), drawn.size()
    return drawn.builder.dot(drawn.value((m, k)), drawn.value((k, n)), dims="mk,kn->mn")


@draws("batched dot")
def _batched_dot(drawn: Drawn) -> Any:
    m, k, n = drawn.size(), drawn.size(), drawn.size()
    x, y = drawn.value((N, m, k)), drawn.value((N, k, n))
    return drawn.builder.dot(x, y, dims="bmk,bkn->bmn")


@draws("transpose")
def _transpose(drawn: Drawn) -> Any:
    rank = len(drawn.shape)
    return drawn.builder.transpose(
        drawn.value(), perm=tuple(drawn.random.sample(range(rank), rank))
    )


@draws("broadcast")
def _broadcast(drawn: Drawn) -> Any:
    result = TensorType((N, *drawn.shape), "f32")
    dims = tuple(range(1, len(result.shape)))
    return drawn.builder.broadcast(drawn.value(), dims=dims, result=result)


@draws("reshape")
def _reshape(drawn: Drawn) -> Any:
    shape = drawn.random.choice([(N * N,), (N, 2, N // 2), (N // 4, 4, N), (N // 4, 4 * N)])
    return drawn.builder.reshape(drawn.value((N, N)), result=TensorType(shape, "f32"))


@draws("dynamic_slice")
def _dynamic_slice(drawn: Drawn) -> Any:
    x = drawn.value()
    starts = [drawn.value((), "i32") for _ in drawn.shape]
    return drawn.builder.dynamic_slice(x, *starts, result=drawn.half())


@pytest.mark.parametrize("kind", DRAWS)
def test_operations_are_aligned_as_in_shardy(kind: str) -> None:
    for seed in range(25):
        drawn = Drawn(Random(f"{kind} {seed}"), (2, 4) if seed % 2 else (2, 3, 4, 6))
        module = number_ops(drawn.module(kind))
        entries = run(module, PASS).ops[1]
        theirs = [
            (tuple(map(cuts, operands)), tuple(map(cuts, results))) for operands, results in entries
        ]
        assert align(module) in theirs, module


def align(module: Module) -> object:
    """Return the sharding of the operation of a module, without the reshards around it."""
    name = module.main.body.ops[0].name
    (op,) = (op for op in InsertExplicitReshards()(module).main.body.ops if op.name == name)
    operands = (value.sharding for value in op.operands if value.type.rank)
    return tuple(map(cuts, operands)), tuple(cuts(value.sharding) for value in op.results)


def cuts(sharding: Sharding | None) -> object:
    return tuple(sharding.axes) if sharding and any(sharding.axes) else None


def test_a_sum_does_not_stay_unreduced_over_an_axis_in_use() -> None:
    """This also holds for the remaining sub-axes: sub-axes of one axis are reduced together."""
    module = InsertExplicitReshards()(
        parse("""\
mesh @m = [x=6]

func @f(
  %a: bool[1@-] unreduced[max](x),
  %b: bool[1@x:(3)2],
) -> (bool[1@-]) {
  %c = and(%a, %b) : bool[1@-] unreduced(x)
  return %c
}
""")
    )
    verify(module)
    assert "%a.sharded = reshard(%a) : bool[1@x:(3)2]\n" in str(module)
