"""Vectorization: from a function of the IR to one that does it many times at once.

before: `func @f(%x: f32[4], %w: f32[4, 8]) -> (f32[8])`
after:  `func @f.vmap(%x: f32[16, 4], %w: f32[4, 8]) -> (f32[16, 8])`, batched over `%x`

The chosen parameters, and everything that depends on them, get one more dimension in front; what
does not depend on them is computed once. Every operation becomes itself over one more loop, by the
rule it declares (`OpSpec.batch`), so values keep their names and lines. A loop whose condition
differs runs until the last one is done, and the choice between branches that differs is one
between the results of all of them. The result is a function like any other, and can be vectorized
again.
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
"""From the sharding of a value to that of many such values."""


def in_front(sharding: Sharding) -> Sharding:
    """The sharding with one more dimension in front, open to propagation."""
    return replace(sharding, dims=(OPEN, *sharding.dims))


def vectorize(
    function: Function,
    batched: Sequence[bool],
    size: int,
    place: Place = in_front,
    axis: str | None = None,
    front: Front | None = None,
) -> Function:
    """The function for `size` arguments at once.

    `batched` says for each parameter whether it gets the new dimension, of `size`, in front.
    Results that depend on one of those get it too, the others keep their types. `place` gives the
    new dimension to shardings, and `front` says which axes of manual computations cut it there.
    Collectives along an axis called `axis` become operations on it.

    Raises `VectorizeError` for per-device programs, and operations without a rule.
    """
    body = function.body
    if function.spmd is not None:
        raise VectorizeError(
            f"@{function.name} is a per-device program; vectorize before 'partition'"
        )
    if len(batched) != len(body.params):
        raise VectorizeError(
            f"@{function.name} has {counted(len(body.params), 'parameter')}, and batched says of "
            f"{len(batched)} whether they have the new dimension"
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
    """The block with every value under the name, and with the sharding, of the one it stands for.

    Of several that stand for one value the first has its name.
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
