"""Batch a function with given handlers of control flow, regions and collectives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shardir.errors import VectorizeError, count_noun
from shardir.ir.builder import Builder, UniqueNames, substitute
from shardir.ir.module import Block, Function, Value
from shardir.ir.sharding import OPEN_DIM, Sharding
from shardir.passes.batching.batcher import BatchAxes, Batcher, Handler
from shardir.passes.rewriting import all_values, used_names

BatchSharding = Callable[[Sharding], Sharding]
"""Maps the sharding of a value to that of the batched value."""


def add_batch_dimension(sharding: Sharding) -> Sharding:
    """Return the sharding with a leading dimension that is open to propagation."""
    return replace(sharding, dims=(OPEN_DIM, *sharding.dims))


def vectorize_with(
    handlers: Mapping[str, Handler],
    function: Function,
    batched: Sequence[bool],
    size: int,
    position: BatchSharding = add_batch_dimension,
    axis: str | None = None,
    front: BatchAxes | None = None,
) -> Function:
    """Return the function over a batch of `size` arguments; see `vectorize`.

    `handlers` batch the operations with blocks, and collectives along `axis`.
    """
    body = function.body
    if function.spmd is not None:
        raise VectorizeError(
            f"@{function.name} is a per-device program; vectorize before 'partition'"
        )
    if len(batched) != len(body.params):
        raise VectorizeError(
            f"@{function.name} has {count_noun(len(body.params), 'parameter')}, but batched "
            f"has {count_noun(len(batched), 'entry', 'entries')}"
        )
    batcher = Batcher(Builder(used_names(function)), size, handlers, axis, front=front)
    params = [batcher.param(value, flag) for value, flag in zip(body.params, batched, strict=True)]
    batcher.run(body.ops)
    new_body = batcher.b.block(params, [batcher.get(value) for value in body.returns])
    results = tuple(
        position(sharding) if sharding and batcher.is_batched(value) else sharding
        for value, sharding in zip(body.returns, function.result_shardings, strict=True)
    )
    return Function(
        f"{function.name}.vmap",
        restore_names_and_shardings(new_body, batcher.original, position),
        results,
    )


def restore_names_and_shardings(
    block: Block, heirs: dict[Value, Value], position: BatchSharding
) -> Block:
    """Return the block in which each value has the name and sharding of the value that it replaces.

    If several values replace one, the first takes its name.
    """
    values = list(dict.fromkeys(all_values(block)))
    names = UniqueNames([heirs[value].name for value in values if value in heirs])
    named: set[Value] = set()
    new: dict[Value, Value] = {}
    for value in values:
        old = heirs.get(value)
        if old is None:
            name_hint = "" if value.name.isdigit() else value.name
            new[value] = Value(value.type, names.fresh(name_hint), value.sharding)
            continue
        name = names.fresh(old.name) if old in named else old.name
        named.add(old)
        sharding = old.sharding
        if sharding is not None and value.type.rank > old.type.rank:
            sharding = position(sharding)
        new[value] = Value(value.type, name, sharding)
    return substitute(block, new)
