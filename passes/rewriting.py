"""Traversals and rewrites of functions that several passes use."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from shardir.errors import PipelineError
from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import OpSpec
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.sub_axes import append_axis
from shardir.ops.communication.async_collectives import done
from shardir.passes.pipeline import Pass


def all_values(block: Block) -> Iterator[Value]:
    """Yield every value that a block and its nested blocks define."""
    yield from block.values()
    for op in block.ops:
        for inner in op.blocks:
            yield from all_values(inner)


def used_names(function: Function) -> UniqueNames:
    """Return the names that are used in a function."""
    return UniqueNames([value.name for value in all_values(function.body)])


def use_counts(block: Block) -> Counter[Value]:
    """Return how often each value is an operand or returned, in nested blocks too."""
    uses: Counter[Value] = Counter(block.returns)
    for op in block.walk():
        uses.update(op.operands)
        for inner in op.blocks:
            uses.update(inner.returns)
    return uses


def shardings_of(function: Function) -> Iterator[Sharding]:
    """Yield the stated sharding of each value and of each result of a function."""
    yield from (v.sharding for v in all_values(function.body) if v.sharding)
    yield from (s for s in function.result_shardings if s)


def rebuild_functions(module: Module, rebuilt: Callable[[Function], Function]) -> Module:
    """Return the module with its functions rebuilt; the same module if none changes."""
    functions = tuple(map(rebuilt, module.functions))
    same = all(a is b for a, b in zip(functions, module.functions, strict=True))
    return module if same else replace(module, functions=functions)


def check_partitioned(module: Module, step: Pass) -> None:
    """Raise `PipelineError` if a pass on per-device programs runs before the partitioning."""
    for function in module.functions:
        if next(shardings_of(function), None) is not None:
            raise PipelineError(
                f"@{function.name} has not been partitioned, and {step.name} needs the program of "
                f"each device; write default,{step}"
            )


def rebuild_device_programs(
    module: Module, step: Pass, rebuilt: Callable[[Block, UniqueNames], Block]
) -> Module:
    """Return the module with the bodies of its per-device programs rebuilt by a pass; `rebuilt`
    gets the used names."""
    check_partitioned(module, step)
    return replace(
        module,
        functions=tuple(
            replace(old, body=rebuilt(old.body, used_names(old))) if old.spmd else old
            for old in module.functions
        ),
    )


Rewrite = Callable[[Builder, Op, Mapping[Value, Op]], bool]
"""Appends the replacement of an operation, given the operation that defines each value, and returns
whether it did."""


def rewrite_each(function: Function, spec: OpSpec, rewrite: Rewrite) -> Function:
    """Return the function with `rewrite` applied to every application of `spec`."""
    names = used_names(function)
    makers: dict[Value, Op] = {}

    def block(old: Block) -> Block:
        b = Builder(names)
        for op in old.ops:
            makers.update(dict.fromkeys(op.results, op))
            if op.blocks:
                op = replace(op, blocks=tuple(map(block, op.blocks)))
            if op.spec is not spec or not rewrite(b, op, makers):
                b.ops.append(op)
        return replace(old, ops=tuple(b.ops))

    return replace(function, body=block(function.body))


def merge_in_mesh_order(axes: Axes, mesh: Mesh) -> Axes:
    """Return axes in mesh order, in which unreduced axes are written."""
    order = list(mesh.sizes)
    joined: Axes = ()
    for axis in sorted(axes, key=lambda axis: (order.index(axis.name), axis.pre)):
        joined = append_axis(joined, axis)
    return joined


KEEP_CHOICES: dict[str, Sequence[str]] = {"keep": ("", "collectives")}
"""The `choices` of passes that remove operations: which operations they must keep."""


def has_effect(op: Op, keeps: bool = False) -> bool:
    """Return whether an operation has an effect besides its results; collectives do if `keeps`,
    and so does the `done` that completes a started one."""
    return op.spec.effect or (keeps and (op.spec.collective or op.spec is done))


def has_nested_effect(op: Op, keeps: bool = False) -> bool:
    """Return whether an operation or a nested one has an effect besides its results."""
    return has_effect(op, keeps) or any(
        has_effect(inner, keeps) for b in op.blocks for inner in b.walk()
    )
