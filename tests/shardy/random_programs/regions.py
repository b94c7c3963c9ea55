"""Control flow and manual computations of random programs, with nested regions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardir import ops as ops  # declares the operations
from shardir.frontend.random_programs.reduction import remove_dead_operations
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.ir.types import TensorType
from shardir.ops.control_flow.manual_computation import add_manual_axes, manual_local_type
from tests.shardy.random_programs.program_builder import ProgramBuilder


def _inside(
    m: ProgramBuilder, params: Sequence[Value], returns: Callable[[ProgramBuilder], list[Value]]
) -> Block:
    """Return a block over some values of the pool."""
    inner = ProgramBuilder(
        m.random, replace(m.options, size=m.random.randint(1, 4)), m.meshes, m.names, m.params,
        m.depth + 1, m.shapes, m.local, m.functions, m.single,
    )  # fmt: skip
    inner.pool = [*m.pool, *params, *params]
    inner.run()
    given = returns(inner)
    m.params = inner.params
    return inner.b.block(params, given)


def while_(m: ProgramBuilder) -> Any:
    inits = [m.any() for _ in range(m.random.randint(1, 3))]
    types = [value.type for value in inits]
    tested = [Value(type, m.names.fresh("t")) for type in types]
    carried = [Value(type, m.names.fresh("c")) for type in types]
    test = m.b.inner()
    total = test.sum(tested[0], dims=tuple(range(types[0].rank)))
    condition = test.block(tested, [test.lt(total, test.constant(value=9.0, result=total.type))])
    body = _inside(m, carried, lambda inner: [inner.like(type.shape) for type in types])
    return m.b.emit(OPS["while"], *inits, blocks=(condition, body))


def case_(m: ProgramBuilder) -> Any:
    index = Value(TensorType((), "i32"), m.names.fresh("p"))
    m.params.append(index)
    shapes = [m.any().type.shape for _ in range(m.random.randint(1, 2))]
    branches = tuple(
        _inside(m, (), lambda inner: [inner.like(shape) for shape in shapes])
        for _ in range(m.random.randint(1, 3))
    )
    return m.b.emit(OPS["case"], index, blocks=branches)


def _cuts(m: ProgramBuilder, shape: tuple[int, ...], axes: Axes) -> tuple[Axes, ...]:
    """Return manual axes for the dimensions of a tensor that they divide."""
    cuts: list[Axes] = [()] * len(shape)
    left = list(shape)
    for axis in axes:
        dim = m.random.randrange(len(shape))
        if left[dim] % axis.size == 0 and m.chance(0.7):
            cuts[dim] = (*cuts[dim], axis)
            left[dim] //= axis.size
    return tuple(cuts)


def manual(m: ProgramBuilder) -> Any:
    mesh = m.meshes[0]
    names = [name for name in mesh.sizes if name not in m.local and m.chance(0.5)]
    axes = tuple(Axis.full(name, mesh) for name in names)
    operands = [m.any() for _ in range(m.random.randint(1, 3))]
    groups = (
        False  # a group is inside of one manual computation, and its number depends on the shape
    )
    inner = ProgramBuilder(
        m.random, replace(m.options, size=m.random.randint(1, 4), groups=groups), m.meshes,
        m.names, m.params, m.depth + 1, {}, (*m.local, *names), m.functions,
    )  # fmt: skip
    first = replace(inner, meshes=m.meshes[:1], options=replace(m.options, priorities=False))

    def stated(shape: tuple[int, ...]) -> Sharding | None:
        return first.sharding(shape) if m.chance(0.5) else None

    in_axes = [_cuts(m, x.type.shape, axes) for x in operands]
    params = []
    for x, cuts in zip(operands, in_axes, strict=True):
        type = manual_local_type(x.type, cuts, axes)
        params.append(Value(type, m.names.fresh("l"), stated(type.shape)))
    inner.pool = [*params, *params]
    inner.run()
    returned = [inner.any() for _ in range(m.random.randint(1, 2))]
    m.params = inner.params
    block = remove_dead_operations(inner.b.block(params, returned))
    # Captured values of the outer blocks are operands with their own sharding.
    captured = list(dict.fromkeys(block.captures()))
    taken = {v: replace(v, name=m.names.fresh("l"), sharding=None) for v in captured}
    body = substitute(block, taken)
    body = Block((*params, *taken.values()), body.ops, body.returns)
    in_axes += [((),) * v.type.rank for v in captured]
    out_axes = tuple(_cuts(m, v.type.shape, axes) for v in returned)
    made = m.b.emit(
        OPS["manual_computation"], *operands, *captured,
        blocks=(body,), axes=axes, in_axes=tuple(in_axes), out_axes=out_axes,
    )  # fmt: skip
    results = list(made) if isinstance(made, tuple) else [made]
    for i, (value, cuts) in enumerate(zip(results, out_axes, strict=True)):
        sharding = stated(value.type.shape)
        named = replace(value, name=m.names.fresh("m.0"))
        results[i] = replace(named, sharding=sharding and add_manual_axes(sharding, cuts))
    m.b.ops[-1] = replace(m.b.ops[-1], results=tuple(results))
    return tuple(results)
