"""Construction of blocks from operations that are checked one by one.

`Builder` collects operations; `b.add(x, y)` is `b.emit(OPS["add"], x, y)`. It applies the
operation's type rule and names the result. `substitute` rebuilds a block under a mapping of values;
passes use it to copy unchanged parts of a program.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from shardir.errors import OperationTypeError
from shardir.ir.dtypes import KEY_WORDS, KEYS
from shardir.ir.module import Block, Loc, Op, Value
from shardir.ir.operation import OPS, Attr, OpSpec, Result
from shardir.ir.sharding import Sharding
from shardir.ir.signature import check_use
from shardir.ir.types import TensorType


class UniqueNames:
    """Generates names that are unique in a function."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self._taken = set(taken)
        self._number = count()
        self._next: dict[str, int] = {}

    def fresh(self, name_hint: str = "") -> str:
        """Return `name_hint`, or `name_hint.1`, ... if it is taken; without a hint, the next
        number.

        A numeric hint that is taken counts as no hint, because it was generated.
        """
        taken = self._taken
        name = name_hint
        if not name_hint or (name_hint.isdigit() and name_hint in taken):
            name = str(next(self._number))
            while name in taken:
                name = str(next(self._number))
        elif name_hint in taken:
            number = self._next.get(name_hint, 1)
            while (name := f"{name_hint}.{number}") in taken:
                number += 1
            self._next[name_hint] = number + 1
        taken.add(name)
        return name


def infer_types(
    spec: OpSpec,
    operands: Sequence[Value],
    result: Result | None,
    attrs: Mapping[str, Attr],
    blocks: tuple[Block, ...] = (),
) -> tuple[TensorType, ...]:
    """Return the result types of an operation; errors name the operation."""
    extra = {"blocks": blocks} if spec.blocks else {}
    try:
        arguments = attrs if spec.attributes is None else spec.rule_arguments(attrs)
        types = spec.type(*(v.type for v in operands), result=result, **arguments, **extra)
    except TypeError as error:
        reason = str(error)
    else:
        result_types = (types,) if isinstance(types, TensorType) else tuple(types)
        for type in result_types:
            if min(type.shape, default=0) < 0:
                raise OperationTypeError(f"{spec.name}: the result {type} has a negative size")
        return result_types
    # Its message is more specific, if it raises.
    check_use(spec, len(operands), attrs, len(blocks))
    raise OperationTypeError(f"{spec.name}: {reason}")


class Builder:
    """Collects the operations of one block.

    New values take names from `names`, which the blocks of one function share. `loc` and `why` are
    attached to every operation that is created while they are set.
    """

    def __init__(self, names: UniqueNames | None = None, loc: Loc | None = None) -> None:
        self.names = names or UniqueNames()
        self.ops: list[Op] = []
        self.loc = loc
        self.why = ""

    def emit(
        self,
        spec: OpSpec,
        *operands: Value,
        result: Result | None = None,
        blocks: tuple[Block, ...] = (),
        name: str | None = None,
        sharding: Sharding | None = None,
        **attrs: Attr,
    ) -> Any:
        """Append an operation; return its result, or a tuple of its results.

        `result` states the result type where the operands do not determine it (broadcast, reshape,
        convert, ...). `name` is a hint for the names of the results; `sharding` is the sharding of
        every result.
        """
        types = infer_types(spec, operands, result, attrs, blocks)
        results = tuple(Value(t, self.names.fresh(name or ""), sharding) for t in types)
        self.append(Op(spec, operands, results, attrs, blocks, self.loc, self.why))
        return results[0] if len(results) == 1 else results

    def append(self, op: Op) -> None:
        """Append an operation to the block."""
        self.ops.append(op)

    def __getattr__(self, name: str) -> Callable[..., Value]:
        """Return a function that appends the operation `name`, which has one result.

        Use `emit` for operations with several results.
        """
        text_name = name.strip("_").replace("_", "-")
        spec = OPS.get(name) or OPS.get(text_name)
        if spec is None and not name.startswith("__"):
            spec = OPS.find(name) or OPS.find(text_name)
        if spec is None:
            raise AttributeError(f"no operation is called {name!r}")
        return lambda *operands, **options: self.emit(spec, *operands, **options)

    def param(self, type: TensorType, name: str = "", sharding: Sharding | None = None) -> Value:
        """Return a value with a fresh name for a parameter of a block."""
        return Value(type, self.names.fresh(name), sharding)

    def full(self, value: complex, type: TensorType) -> Value:
        """Return a tensor of `type` whose elements all equal `value`.

        All words of a random key are the value.
        """
        if type.dtype in KEYS:
            words = TensorType((*type.shape, KEY_WORDS[type.dtype]), "u32")
            keys: Value = self.bitcast(self.full(value, words), result=type)
            return keys
        constant: Value = self.constant(value=value, result=type)
        return constant

    def inner(self) -> "Builder":
        """Return a builder for a nested block, with the same names and location."""
        return Builder(self.names, self.loc)

    def block(self, params: Sequence[Value], returns: Sequence[Value]) -> Block:
        """Return a block of the collected operations, with these parameters and returned values."""
        return Block(tuple(params), tuple(self.ops), tuple(returns))


def as_values(results: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the results of a builder method as a tuple."""
    return results if isinstance(results, tuple) else (results,)


def substitute(block: Block, new: Mapping[Value, Value]) -> Block:
    """Return the block with values replaced according to `new`, including nested blocks.

    Values that are not in `new` are unchanged. An operation in which nothing changes, and a block
    of such operations, is the same object in the result.
    """
    if not new:
        return block

    # Substitution is a large part of the time of tracing and of the passes. A comprehension is
    # faster than a generator here, and `Op` than `dataclasses.replace`.
    def each(values: tuple[Value, ...]) -> tuple[Value, ...]:
        for value in values:
            if value in new:
                return tuple([new.get(v, v) for v in values])
        return values

    def rebuild(op: Op) -> Op:
        operands, results, blocks = each(op.operands), each(op.results), op.blocks
        if blocks:
            rebuilt = tuple([rebuild_block(b) for b in blocks])
            if any(a is not b for a, b in zip(rebuilt, blocks, strict=True)):
                blocks = rebuilt
        if operands is op.operands and results is op.results and blocks is op.blocks:
            return op
        return Op(op.spec, operands, results, op.attrs, blocks, op.loc, op.why)

    def rebuild_block(block: Block) -> Block:
        params, returns = each(block.params), each(block.returns)
        ops = tuple([rebuild(op) for op in block.ops])
        if (
            params is block.params
            and returns is block.returns
            and all(a is b for a, b in zip(ops, block.ops, strict=True))
        ):
            return block
        return Block(params, ops, returns)

    return rebuild_block(block)


def inline(b: Builder, block: Block, args: Sequence[Value]) -> tuple[Value, ...]:
    """Append the block's operations to `b` with `args` for its parameters; return its results.

    Every value that the block defines is copied with a fresh name, so a block can be inlined
    several times.
    """
    new: dict[Value, Value] = dict(zip(block.params, args, strict=True))
    for op in block.ops:
        b.append(copy_op(op, new, b.names))
    return tuple(new.get(v, v) for v in block.returns)


def copy_op(op: Op, new: dict[Value, Value], names: UniqueNames) -> Op:
    """Return a copy of the operation with its operands replaced according to `new`.

    All values that it defines are copied with fresh names and added to `new`.
    """
    operands = tuple([new.get(v, v) for v in op.operands])
    blocks = tuple([_copy_block(block, new, names) for block in op.blocks])
    results = tuple([_copy_value(result, new, names) for result in op.results])
    return Op(op.spec, operands, results, op.attrs, blocks, op.loc, op.why)


def _copy_block(block: Block, new: dict[Value, Value], names: UniqueNames) -> Block:
    params = tuple([_copy_value(param, new, names) for param in block.params])
    ops = tuple([copy_op(op, new, names) for op in block.ops])
    return Block(params, ops, tuple([new.get(v, v) for v in block.returns]))


def _copy_value(value: Value, new: dict[Value, Value], names: UniqueNames) -> Value:
    copy = new[value] = Value(value.type, names.fresh(value.name), value.sharding)
    return copy
