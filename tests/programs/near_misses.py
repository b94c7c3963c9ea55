"""Programs that differ from a given one in one place.

A pass that replaces a pattern must not replace programs that only resemble it. `near_misses`
changes one operand, attribute, operation or use, or the element types or sizes, of a program, and
`disagreements` lists the changed programs whose results a pipeline changes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from shardir.errors import InterpretError, ShardirError
from shardir.frontend.stories.pipeline_check import result_difference
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.builder import infer_types
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, GlobalTensor, Module, Op, SpmdInterface, Value
from shardir.ir.operation import OPS, Attr
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import NumpyArray, TensorType
from shardir.passes import Pipeline
from shardir.verify.verifier import verify

_SIMILAR_OPERATIONS = (
    ("add", "sub", "mul", "max", "min", "div"),
    ("eq", "ne", "lt", "le", "gt", "ge"),
    ("and", "or", "xor"),
    ("neg", "exp", "abs"),
)
_SIMILAR_WORDS = (("add", "mul", "max", "min"), ("and", "or"))
MAX_SECONDS = 0.2
"""How long a program may run, so that loops that do not end are left out."""
_DTYPES = ("f32", "bf16", "i32", "u8", "bool", "c64")

Change = Callable[[int, Op], tuple[Op, ...]]
"""Returns what replaces an operation, given its position: the operations before it that its changed
operands need, and the operation."""
Retyping = Callable[[TensorType], TensorType]


def disagreements(
    module: Module,
    pipeline: str,
    difference: Callable[[Module, Module, Sequence[NumpyArray]], str] = result_difference,
) -> list[str]:
    """Return how a pipeline changes results of a module and of the programs that resemble it.

    A pipeline may refuse a program, but must return valid programs. `difference` describes the
    difference of the results of two programs for some arguments.
    """
    passes = Pipeline.parse(pipeline)
    found: list[str] = []
    for program in (module, *near_misses(module)):
        arguments = random_arguments(program)
        try:
            run(program, arguments, seconds=MAX_SECONDS)
            result = passes(program)
        except InterpretError:  # Its devices disagree, or it does not end.
            continue
        except ShardirError as error:
            if error.__cause__ is not None and not isinstance(error.__cause__, ShardirError):
                found.append(f"{error}\n{program}")
            continue
        verify(result)
        if text := difference(program, result, arguments):
            found.append(f"{text}\n{program}\nbecame\n{result}")
    return found


def near_misses(module: Module) -> Iterator[Module]:
    """Yield the valid programs that differ from a module in one place of its first function."""
    seen = {str(module)}
    for made in _changed_programs(module):
        try:
            program = made()
            verify(program)
        except (ShardirError, TypeError, ValueError, KeyError, IndexError):
            continue
        if (text := str(program)) not in seen:
            seen.add(text)
            yield program


def _changed_programs(module: Module) -> Iterator[Callable[[], Module]]:
    for at, change in _changes(module.main.body):
        yield lambda at=at, change=change: _rebuilt(  # type: ignore[misc]
            module, lambda position, op: change(op) if position == at else (op,)
        )
    for op in module.main.body.ops:
        for value in op.results:
            yield lambda value=value: _also_returning(module, value)  # type: ignore[misc]
    types = [param.type for param in module.main.body.params]
    for old in dict.fromkeys(each.dtype for each in types):
        for new in _DTYPES:
            yield lambda old=old, new=new: _rebuilt(  # type: ignore[misc]
                module, retype=lambda t: t.with_dtype(new) if t.dtype == old else t
            )
    for size in dict.fromkeys(size for each in types for size in each.shape):
        for other in (1, 2 * size):
            yield lambda size=size, other=other: _rebuilt(  # type: ignore[misc]
                module,
                retype=lambda t: t.with_shape([other if s == size else s for s in t.shape]),
            )


def _changes(body: Block) -> Iterator[tuple[int, Callable[[Op], tuple[Op, ...]]]]:
    """Yield changes of one operation, with its position in the order of `_rebuilt`."""
    positions = count()

    def block(
        old: Block, scope: list[Value]
    ) -> Iterator[tuple[int, Callable[[Op], tuple[Op, ...]]]]:
        scope = [*scope, *old.params]
        for op in old.ops:
            at = next(positions)
            for changed in _changed_operations(op, scope):
                yield at, lambda _, changed=changed: changed  # type: ignore[misc]
            for inner in op.blocks:
                yield from block(inner, scope)
            scope += op.results

    return block(body, [])


def _changed_operations(op: Op, scope: list[Value]) -> Iterator[tuple[Op, ...]]:
    """Yield what differs from an operation in one operand, attribute or its name."""
    for i, operand in enumerate(op.operands):
        alike = [v for v in scope if v.type == operand.type and v is not operand]
        for other in {id(v): v for v in (*alike[:1], *alike[-1:])}.values():
            yield (replace(op, operands=(*op.operands[:i], other, *op.operands[i + 1 :])),)
        if i:
            first, second = op.operands[i - 1 : i + 1]
            yield (
                replace(op, operands=(*op.operands[: i - 1], second, first, *op.operands[i + 1 :])),
            )
        negative = Value(operand.type, f"{operand.name}.negative", operand.sharding)
        name = "not" if operand.type.dtype == "bool" else "neg"
        yield (
            Op(OPS[name], (operand,), (negative,)),
            replace(op, operands=(*op.operands[:i], negative, *op.operands[i + 1 :])),
        )
    for name in _others(op.name, _SIMILAR_OPERATIONS):
        yield (replace(op, spec=OPS[name]),)
    for key, old in op.attrs.items():
        for new in _changed_attributes(old):
            yield (replace(op, attrs={**op.attrs, key: new}),)


def _changed_attributes(value: Attr) -> Iterator[Attr]:
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, value - 1)
        case float():
            yield from (-value, 0.0, 1.0)
        case str():
            yield from _others(value, _SIMILAR_WORDS)
            if value.count("->") == 1:
                operands, result = value.split("->")
                yield f"{operands}->{result[::-1]}"
        case tuple() if value:
            yield from (value[1:], value[:-1], value[::-1])
            if not isinstance(value[0], Axis):
                for i, part in enumerate(value):
                    for other in _changed_attributes(part):
                        yield (*value[:i], other, *value[i + 1 :])


def _others(word: str, groups: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the other words of the first group that contains a word."""
    group = next((each for each in groups if word in each), ())
    return (each for each in group if each != word)


def _rebuilt(
    module: Module,
    change: Change = lambda _, op: (op,),
    retype: Retyping = lambda type: type,
) -> Module:
    """Return a module with changed operations and types in its first function.

    The types of results are inferred. `retype` returns the new types of parameters, and of results
    that their operands do not determine.
    """
    new: dict[Value, Value] = {}
    positions = count()

    def define(old: Value, type: TensorType) -> Value:
        new[old] = replace(old, type=type)
        return new[old]

    def operation(op: Op) -> Op:
        operands = tuple(new.get(v, v) for v in op.operands)
        blocks = tuple(map(block, op.blocks))
        stated = retype(op.results[0].type) if op.results else None
        types = infer_types(op.spec, operands, stated, op.attrs, blocks)
        results = tuple(map(define, op.results, types))
        return replace(op, operands=operands, results=results, blocks=blocks)

    def block(old: Block) -> Block:
        params = tuple(define(param, retype(param.type)) for param in old.params)
        ops: list[Op] = []
        for op in old.ops:
            ops += map(operation, change(next(positions), op))
        return Block(params, tuple(ops), tuple(new.get(v, v) for v in old.returns))

    main = module.main
    body = block(main.body)
    spmd = main.spmd and SpmdInterface(
        _with_types(main.spmd.params, main.body.params, body.params),
        _with_types(main.spmd.results, main.body.returns, body.returns),
    )
    return _with_main(module, replace(main, body=body, spmd=spmd))


def _with_types(
    tensors: tuple[GlobalTensor, ...], before: tuple[Value, ...], after: tuple[Value, ...]
) -> tuple[GlobalTensor, ...]:
    """Return the global tensors of changed local values."""
    return tuple(map(_with_type, tensors, before, after))


def _with_type(tensor: GlobalTensor, before: Value, after: Value) -> GlobalTensor:
    type = tensor.type.with_dtype(after.type.dtype)
    if after.type.shape != before.type.shape:
        dims = zip(after.type.shape, tensor.sharding.dims, strict=True)
        type = type.with_shape([size * dim.num_shards for size, dim in dims])
    return replace(tensor, type=type)


def _also_returning(module: Module, value: Value) -> Module:
    """Return a module whose first function returns one value more, as a result of each device."""
    main = module.main
    spmd = main.spmd
    if spmd is not None:
        (mesh,) = module.meshes
        spmd = replace(spmd, results=(*spmd.results, _tensor_of_devices(value, mesh)))
    body = replace(main.body, returns=(*main.body.returns, value))
    results = (*main.result_shardings, None)
    return _with_main(module, replace(main, body=body, result_shardings=results, spmd=spmd))


def _tensor_of_devices(value: Value, mesh: Mesh) -> GlobalTensor:
    """Return the global tensor whose shards along the first dimension are those of all devices."""
    first, *rest = value.type.shape
    axes = tuple(Axis.full(name, mesh) for name in mesh.sizes)
    sharding = Sharding.of(mesh.name, [axes, *(() for _ in rest)])
    return GlobalTensor(value.type.with_shape([first * mesh.size, *rest]), sharding)


def _with_main(module: Module, main: Function) -> Module:
    return replace(module, functions=(main, *module.functions[1:]))
