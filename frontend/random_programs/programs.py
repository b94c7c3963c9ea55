"""Random programs that a seed determines, and the check that a pipeline keeps their results."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from shardir.errors import ShardirError, suggest_name
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.random_programs.choices import Choices, SeededChoices
from shardir.frontend.random_programs.pointwise import register_pointwise
from shardir.frontend.random_programs.reduction import smallest_failure
from shardir.frontend.random_programs.scope import SAMPLERS, Scope, runnable_operations
from shardir.frontend.random_programs.shardings import MESHES, choose_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.stories.pipeline_check import result_difference
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding
from shardir.passes.pipeline import Pipeline
from shardir.verify.verifier import verify

DEFAULT_OPERATIONS = 6
"""The largest number of operations of a random program by default."""
SHARDED_VALUES = 3
"""About one of this number of values has a sharding."""


class PassError(ShardirError, AssertionError):
    """A pipeline fails on a random program, or changes its results."""


@with_argument_errors
def random_program(
    seed: int,
    *,
    size: int = DEFAULT_OPERATIONS,
    operations: Sequence[str] | None = None,
    mesh: Mesh | None = None,
) -> Module:
    """Return the program that a seed determines: a valid module with one function.

    It has 1 to `size` of the named `operations` (by default any that can run on one device), and
    the operations that their operands need. Some values have shardings over `mesh`, by default one
    of three meshes of eight devices. The function returns all values that no operation uses. Other
    versions of shardir may return other programs for a seed.
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ArgumentError(with_location(f"the seed of a program is an integer, got {seed!r}"))
    if not isinstance(size, int) or size < 1:
        raise ArgumentError(with_location(f"a program has at least 1 operation, got {size!r}"))
    known = runnable_operations(spmd=False)
    names = known if operations is None else list(operations)
    for name in names:
        spec = None if name in SAMPLERS else OPS.find(name)
        if name not in SAMPLERS and (spec is None or not register_pointwise(spec)):
            hint = suggest_name(str(name), SAMPLERS) or "shardir.testing.sampler registers one"
            raise ArgumentError(
                with_location(f"random programs have no sampler of {name!r}; {hint}")
            )
    choices = SeededChoices(seed)
    chosen = choices.choose(MESHES) if mesh is None else mesh
    b = Builder()
    scope = Scope(choices, b, chosen, inner=known)
    for _ in range(choices.integer(1, size)):
        SAMPLERS[choices.choose(names)](scope)
    used = {value for op in b.ops for value in op.uses()}
    returns = [value for op in b.ops for value in op.results if value not in used]
    body = b.block(scope.params, returns)
    function = Function("main", _with_shardings(choices, body, chosen), (None,) * len(returns))
    return Module((chosen,), (function,))


@with_argument_errors
def assert_pass_equivalent(
    pipeline: str,
    *,
    seeds: Iterable[int] = range(100),
    size: int = DEFAULT_OPERATIONS,
    operations: Sequence[str] | None = None,
    mesh: Mesh | None = None,
) -> None:
    """Check that a pipeline returns valid programs with the same results, on random programs.

    The programs are those of `random_program` for the `seeds` and the other arguments. In the
    pipeline, the step `default` stands for the default pipeline. The reference interpreter runs the
    programs before and after it on random arguments, with the tolerance of `assert_equivalent`.
    Raises `PassError` with the seed and the smallest part of the program on which the pipeline
    fails in the same way.
    """
    passes = Pipeline.parse(pipeline)
    for seed in seeds:
        module = random_program(seed, size=size, operations=operations, mesh=mesh)
        found = _find_failure(passes, module)
        if found is None:
            continue
        kind, _ = found
        small = smallest_failure(module, partial(_fails_as, passes, kind))
        kind, description = _find_failure(passes, small) or found
        raise PassError(
            f"{pipeline!r} {description} (seed {seed}) on the program\n\n{small}"
        ) from kind.error


class _Failure:
    """The kind of a failure: the type of the error, or `None` for other results."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Failure) and type(self.error) is type(other.error)

    __hash__ = object.__hash__


def _find_failure(passes: Pipeline, module: Module) -> tuple[_Failure, str] | None:
    """Return how a pipeline fails on a program, or `None`."""
    try:
        made = passes(module)
        verify(made)
    except Exception as error:
        return _Failure(error), f"raises {type(error).__name__}: {error}"
    wrong = result_difference(module, made)
    return (_Failure(), f"changes the results: {wrong}") if wrong else None


def _fails_as(passes: Pipeline, kind: _Failure, module: Module) -> bool:
    """Return whether a pipeline fails on a valid program in the same way."""
    try:
        verify(module)
        result = _find_failure(passes, module)
    except ShardirError:  # A reduction may be an invalid program.
        return False
    return result is not None and result[0] == kind


def _with_shardings(choices: Choices, block: Block, mesh: Mesh) -> Block:
    """Return the block with shardings on some of its parameters and results."""
    new: dict[Value, Value] = {}

    def choose(value: Value) -> Sharding | None:
        if choices.integer(1, SHARDED_VALUES) > 1:
            return None
        return choose_sharding(choices, mesh, value.type.shape)

    def define(old: Value) -> Value:
        new[old] = replace(old, sharding=choose(old))
        return new[old]

    params = tuple(map(define, block.params))
    ops = tuple(_rebuild(op, new, define) for op in block.ops)
    return Block(params, ops, tuple(new[value] for value in block.returns))


def _rebuild(op: Op, new: dict[Value, Value], define: Callable[[Value], Value]) -> Op:
    """Return the operation with new operands and results; values of blocks have no shardings."""

    def rebuild_block(old: Block) -> Block:
        for param in old.params:
            new[param] = param
        ops = tuple(_rebuild(inner, new, keep) for inner in old.ops)
        return Block(old.params, ops, tuple(new[value] for value in old.returns))

    def keep(old: Value) -> Value:
        new[old] = old
        return old

    operands = tuple(new[value] for value in op.operands)
    blocks = tuple(map(rebuild_block, op.blocks))
    return replace(op, operands=operands, blocks=blocks, results=tuple(map(define, op.results)))
