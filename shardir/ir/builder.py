"""Construction of blocks from operations that are checked one by one.

`Builder` collects operations; `b.add(x, y)` is `b.emit(OPS["add"], x, y)`. It applies the
operation's type rule and names the result. `substitute` rebuilds a block under a mapping of values;
passes use it to copy unchanged parts of a program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from shardir.errors import OperationTypeError
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
        if not name_hint or (name_hint.isdigit() and name_hint in self._taken):
            name = next(name for n in self._number if (name := str(n)) not in self._taken)
        elif name_hint not in self._taken:
            name = name_hint
        else:
            numbers = count(self._next.get(name_hint, 1))
            n, name = next((n, s) for n in numbers if (s := f"{name_hint}.{n}") not in self._taken)
            self._next[name_hint] = n + 1
        self._taken.add(name)
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
        """Return a tensor of `type` whose elements all equal `value`."""
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


def substitute(block: Block, new: dict[Value, Value]) -> Block:
    """Return the block with values replaced according to `new`, including nested blocks.

    Values that are not in `new` are unchanged.
    """

    def each(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(new.get(v, v) for v in values)

    def rebuild(op: Op) -> Op:
        return replace(
            op,
            operands=each(op.operands),
            results=each(op.results),
            blocks=tuple(substitute(b, new) for b in op.blocks),
        )

    return Block(each(block.params), tuple(map(rebuild, block.ops)), each(block.returns))


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
    operands = tuple(new.get(v, v) for v in op.operands)
    blocks = tuple(_copy_block(block, new, names) for block in op.blocks)
    for result in op.results:
        new[result] = replace(result, name=names.fresh(result.name))
    return replace(op, operands=operands, results=tuple(new[v] for v in op.results), blocks=blocks)


def _copy_block(block: Block, new: dict[Value, Value], names: UniqueNames) -> Block:
    for param in block.params:
        new[param] = replace(param, name=names.fresh(param.name))
    ops = tuple(copy_op(op, new, names) for op in block.ops)
    return Block(
        tuple(new[p] for p in block.params), ops, tuple(new.get(v, v) for v in block.returns)
    )
