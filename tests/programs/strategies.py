"""Random modules: hypothesis strategies over all operations, shardings and locations."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from shardir.frontend.random_programs.scope import SAMPLERS, Scope, runnable_operations
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, GlobalTensor, Loc, Module, Op, SpmdInterface, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding
from shardir.verify.verifier import GLOBAL_ONLY
from tests.programs.hypothesis_choices import HypothesisChoices
from tests.programs.shardings import MESHES, any_shardings

OTHER_MESHES = (
    Mesh("reversed", (("a", 2), ("b", 3)), (5, 4, 3, 2, 1, 0)),
    Mesh("one", (), (3,)),
)


@st.composite
def modules(
    draw: st.DrawFn,
    *,
    ops: list[str] | None = None,
    mesh: Mesh | None = None,
    size: int = 6,
) -> Module:
    """Draw a function of up to `size` operations (those named, or any) without shardings.

    It returns all values without uses, so that no operation is dead.
    """
    mesh = mesh or draw(st.sampled_from(MESHES))
    return Module((mesh,), (_function(draw, mesh, ops or runnable_operations(spmd=False), size),))


@st.composite
def sharded_modules(draw: st.DrawFn, *, size: int = 6) -> Module:
    """Draw a module with any valid shardings on some values and results, on several meshes."""
    module = draw(modules(size=size))
    meshes = module.meshes + OTHER_MESHES[: draw(st.integers(0, 2))]

    def choose(value: Value) -> Sharding | None:
        if not draw(st.booleans()):
            return None
        return draw(any_shardings(draw(st.sampled_from(meshes)), value.type))

    body = _change_block(
        module.main.body, lambda v: replace(v, sharding=choose(v)), _add_locations(draw), {}
    )
    results = tuple(map(choose, body.returns))
    return Module(meshes, (replace(module.main, body=body, result_shardings=results),))


@st.composite
def spmd_modules(draw: st.DrawFn, *, size: int = 6) -> Module:
    """Draw a per-device program with collectives."""
    mesh = draw(st.sampled_from(MESHES))
    names = [name for name in SAMPLERS if OPS[name] not in GLOBAL_ONLY]
    function = _function(draw, mesh, names, size, spmd=True)

    def whole(value: Value) -> GlobalTensor:
        sharding = draw(any_shardings(mesh, value.type))
        shape = zip(value.type.shape, sharding.dims, strict=True)
        return GlobalTensor(
            value.type.with_shape([n * dim.num_shards for n, dim in shape]), sharding
        )

    body = _change_block(function.body, lambda v: v, _add_locations(draw), {})
    interface = SpmdInterface(tuple(map(whole, body.params)), tuple(map(whole, body.returns)))
    return Module((mesh,), (replace(function, body=body, spmd=interface),))


def any_modules() -> st.SearchStrategy[Module]:
    """Draw a module of any kind; some of its operations have locations and reasons."""
    return st.one_of(sharded_modules(), spmd_modules())


def _function(
    draw: st.DrawFn, mesh: Mesh, names: list[str], size: int, *, spmd: bool = False
) -> Function:
    b = Builder()
    inner = [n for n in runnable_operations(spmd=False) if not (spmd and OPS[n] in GLOBAL_ONLY)]
    scope = Scope(HypothesisChoices(draw), b, mesh, inner=inner)
    for _ in range(draw(st.integers(0, size))):
        SAMPLERS[draw(st.sampled_from(names))](scope)
    used = {value for op in b.ops for value in op.uses()}
    returns = [value for op in b.ops for value in op.results if value not in used]
    block = b.block(scope.params, returns)
    return Function("main", block, (None,) * len(returns))


def _change_block(
    block: Block,
    value: Callable[[Value], Value],
    op: Callable[[Op], Op],
    new: dict[Value, Value],
) -> Block:
    """Return the block with every value and operation changed; `new` collects the values."""

    def define(old: Value) -> Value:
        new[old] = value(old)
        return new[old]

    def change(old: Op) -> Op:
        operands = tuple(new[v] for v in old.operands)
        blocks = tuple(_change_block(inner, value, op, new) for inner in old.blocks)
        results = tuple(map(define, old.results))
        return op(replace(old, operands=operands, blocks=blocks, results=results))

    params = tuple(map(define, block.params))
    ops = tuple(map(change, block.ops))
    return Block(params, ops, tuple(new[v] for v in block.returns))


def _add_locations(draw: st.DrawFn) -> Callable[[Op], Op]:
    lines = st.integers(1, 1000)
    locations = st.none() | st.builds(Loc, st.text(min_size=1, max_size=8), lines, lines)
    reasons = st.just("") | st.text(max_size=8)
    return lambda op: replace(op, loc=draw(locations), why=draw(reasons))
