"""Vectorization (vmap): transform a function to one that computes it for a batch of arguments.

before: `func @f(%x: f32[4], %w: f32[4, 8]) -> (f32[8])`
after:  `func @f.vmap(%x: f32[16, 4], %w: f32[4, 8]) -> (f32[16, 8])`, batched over `%x`

The chosen parameters, and all values that depend on them, get a leading batch dimension; other
values are computed once. Each operation gets one more factor by the rule that it declares
(`OpSpec.batch`), so values keep their names and source lines. A loop whose condition is batched
runs until the last element is done, and a branch on a batched index computes all branches and
selects. The result is an ordinary function that can be vectorized again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shardir.build import Builder, Names, substitute
from shardir.errors import VectorizeError, counted
from shardir.ir import Block, Function, Value
from shardir.passes import (
    vectorize_axes,
    vectorize_control,
    vectorize_manual,
    vectorize_regions,
)
from shardir.passes.batcher import Batcher, Front
from shardir.passes.program import names_of, values_of
from shardir.placement import OPEN, Sharding

_HANDLERS = {
    **vectorize_control.HANDLERS,
    **vectorize_regions.HANDLERS,
    **vectorize_axes.HANDLERS,
    **vectorize_manual.HANDLERS,
}

Place = Callable[[Sharding], Sharding]
"""Maps the sharding of a value to that of the batched value."""


def in_front(sharding: Sharding) -> Sharding:
    """Return the sharding with a leading dimension that is open to propagation."""
    return replace(sharding, dims=(OPEN, *sharding.dims))


def vectorize(
    function: Function,
    batched: Sequence[bool],
    size: int,
    place: Place = in_front,
    axis: str | None = None,
    front: Front | None = None,
) -> Function:
    """Return the function over a batch of `size` arguments.

    `batched` states for each parameter whether it has a leading dimension of `size`. Results that
    depend on such parameters have one too; the others keep their types. `place` adds the batch
    dimension to shardings, and `front` returns the axes of manual computations that shard it.
    Collectives along an axis called `axis` become operations on the batch dimension.

    Raises `VectorizeError` for per-device programs, and for operations without a batching rule.
    """
    body = function.body
    if function.spmd is not None:
        raise VectorizeError(
            f"@{function.name} is a per-device program; vectorize before 'partition'"
        )
    if len(batched) != len(body.params):
        raise VectorizeError(
            f"@{function.name} has {counted(len(body.params), 'parameter')}, but batched "
            f"has {len(batched)} entries"
        )
    batcher = Batcher(Builder(names_of(function)), size, _HANDLERS, axis, front=front)
    params = [batcher.param(value, flag) for value, flag in zip(body.params, batched, strict=True)]
    batcher.run(body.ops)
    made = batcher.b.block(params, [batcher.get(value) for value in body.returns])
    results = tuple(
        place(sharding) if sharding and batcher.has(value) else sharding
        for value, sharding in zip(body.returns, function.results, strict=True)
    )
    return Function(f"{function.name}.vmap", _settled(made, batcher.heirs, place), results)


def _settled(block: Block, heirs: dict[Value, Value], place: Place) -> Block:
    """Return the block in which each value has the name and sharding of the value that it replaces.

    If several values replace one, the first takes its name.
    """
    values = list(dict.fromkeys(values_of(block)))
    names = Names([heirs[value].name for value in values if value in heirs])
    given: set[Value] = set()
    new: dict[Value, Value] = {}
    for value in values:
        old = heirs.get(value)
        if old is None:
            wish = "" if value.name.isdigit() else value.name
            new[value] = Value(value.type, names.fresh(wish), value.sharding)
            continue
        name = names.fresh(old.name) if old in given else old.name
        given.add(old)
        sharding = old.sharding
        if sharding is not None and value.type.rank > old.type.rank:
            sharding = place(sharding)
        new[value] = Value(value.type, name, sharding)
    return substitute(block, new)
