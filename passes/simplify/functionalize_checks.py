"""Turn the checks of a function into results: the number of the first failed check, and its values.

A check is a callback whose host function is a `Check`. With `automatic`, results that are NaN,
divisors that are zero and indices out of bounds are checked too. Loops carry the number and the
values, and branches return them. The number is 0 without a failed check, and otherwise the position
in the returned list.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardir import ops as specs
from shardir.errors import ShardirError
from shardir.ir.builder import Builder, UniqueNames, inline
from shardir.ir.check import Check
from shardir.ir.host_function import host_function_of
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.operation import Dense, OpSpec
from shardir.ir.types import INEXACT, TensorType
from shardir.ops.control_flow.host_callbacks import CallbackAttributes
from shardir.ops.indexing.layout import GatherAttributes, ScatterAttributes
from shardir.passes.rewriting import used_names

AUTOMATIC_CHECKS = ("nan", "div", "index")
"""The conditions that are checked without a `Check`: no result is NaN, no divisor is zero, and no
index is out of bounds."""

CODE = TensorType((), "i32")

RETURNING = (specs.case, specs.scan, specs.while_, specs.checkpoint)
"""Operations with blocks that return or carry the results of their checks."""


class UnsupportedCheckError(ShardirError, NotImplementedError):
    """A check is inside of an operation that cannot return it."""


@dataclass(frozen=True)
class CheckedFunction:
    """A function with the number of the failed check, and the values of all messages, as results.

    `checks` are the checks in order of their numbers, `counts` the numbers of their values.
    """

    function: Function
    checks: tuple[Check, ...]
    counts: tuple[int, ...]


def functionalize_checks(function: Function, automatic: Sequence[str] = ()) -> CheckedFunction:
    """Return the function with its checks as results; raise `UnsupportedCheckError` for a check in
    a custom derivative, a pipeline or a manual computation.
    """
    transform = _Transform(used_names(function), frozenset(automatic))
    transform.collect(function.body)
    b = Builder(transform.names)
    state = [b.full(0, CODE), *(b.full(0, type) for type in transform.types)]
    ops, state = transform.run(function.body.ops, state)
    body = Block(function.body.params, (*b.ops, *ops), (*function.body.returns, *state))
    return CheckedFunction(
        replace(
            function,
            body=body,
            result_shardings=(*function.result_shardings, *(None for _ in state)),
        ),
        tuple(transform.checks),
        tuple(transform.counts),
    )


def check_of(op: Op) -> Check | None:
    """Return the check that a callback makes, or `None`."""
    if op.spec is not specs.callback:
        return None
    function = host_function_of(op.attrs["function"])
    return function if isinstance(function, Check) else None


@dataclass(frozen=True)
class _AutomaticCheck:
    """A condition of an operation, with the types of the values of its message."""

    check: Check
    kind: str
    types: tuple[TensorType, ...] = ()


class _Transform:
    """The checks of a function, and their state: the number of the failed one and all values."""

    def __init__(self, names: UniqueNames, automatic: frozenset[str]) -> None:
        self.names, self.automatic = names, automatic
        self.checks: list[Check] = []
        self.counts: list[int] = []
        self.types: list[TensorType] = []
        self.first_value: list[int] = []
        self.numbers: dict[tuple[Check, tuple[TensorType, ...]], int] = {}

    def collect(self, block: Block) -> None:
        """Number all checks of a block, and of the nested blocks whose checks become results."""
        for op in block.ops:
            check = check_of(op)
            if check is not None:
                self._number(check, _value_types(op))
            for each in self._automatic_checks(op):
                self._number(each.check, each.types)
            if op.spec in RETURNING:
                for inner in op.blocks:
                    self.collect(inner)

    def _number(self, check: Check, types: tuple[TensorType, ...]) -> int:
        """Return the number of a check; checks with equal messages and types share it."""
        key = check, types
        if key not in self.numbers:
            self.checks.append(check)
            self.counts.append(len(types))
            self.first_value.append(1 + len(self.types))
            self.types.extend(types)
            self.numbers[key] = len(self.checks)
        return self.numbers[key]

    def _automatic_checks(self, op: Op) -> list[_AutomaticCheck]:
        made = []
        if "div" in self.automatic and op.spec in (specs.div, specs.rem):
            made.append(_AutomaticCheck(Check("division by zero"), "div"))
        if "index" in self.automatic and (index := _index_check(op)) is not None:
            made.append(index)
        if "nan" in self.automatic and _may_make_nan(op):
            check = Check(f"nan generated by primitive: {op.name}.")
            made.append(_AutomaticCheck(check, "nan"))
        return made

    def has_check(self, op: Op) -> bool:
        """Return whether a nested block of an operation has a check.

        Automatic checks of an operation that is not in `RETURNING` concern its results alone.
        """
        automatic = op.spec in RETURNING
        return any(
            check_of(inner) is not None or (automatic and bool(self._automatic_checks(inner)))
            for block in op.blocks
            for inner in block.walk()
        )

    def run(self, ops: Sequence[Op], state: list[Value]) -> tuple[list[Op], list[Value]]:
        """Return the operations without checks, and the state after them."""
        done: list[Op] = []
        for op in ops:
            b = Builder(self.names, op.loc)
            check = check_of(op)
            if check is not None:
                types = _value_types(op)
                condition, *values = op.operands
                number = self._number(check, types)
                state = self._record(b, b.not_(condition), number, values, types, state)
                done += b.ops
                continue
            if self.has_check(op):
                new, state = self._run_nested(b, op, state)
                done += [*b.ops, new]
                b = Builder(self.names, op.loc)
            else:
                done.append(op)
            for each in self._automatic_checks(op):
                failed, values = _evaluate(b, op, each)
                number = self._number(each.check, each.types)
                state = self._record(b, failed, number, values, each.types, state)
            done += b.ops
        return done, state

    def _record(
        self,
        b: Builder,
        failed: Value,
        number: int,
        values: Sequence[Value],
        types: Sequence[TensorType],
        state: list[Value],
    ) -> list[Value]:
        """Return the state after a check of several elements, of which the first one that fails has
        the values of the message.
        """
        if not failed.type.rank:
            return self._set(b, failed, number, values, state)
        size = failed.type.size
        flat = b.reshape(failed, result=TensorType((size,), "bool"))
        found = b.any(flat, dims=(0,))
        if not values or not size:
            return self._set(b, found, number, (), state)
        position = b.iota(dim=0, result=TensorType((size,), "i32"))
        last = b.full(size - 1, position.type)
        first = b.min(b.select(flat, position, last), dims=(0,))
        chosen = [
            self._take(b, b.reshape(x, result=type.with_shape((size, *type.shape))), first)
            for x, type in zip(values, types, strict=True)
        ]
        return self._set(b, found, number, chosen, state)

    def _take(self, b: Builder, rows: Value, index: Value) -> Value:
        zero = b.full(0, index.type)
        piece = b.emit(
            specs.dynamic_slice, rows, index, *(zero for _ in rows.type.shape[1:]),
            result=rows.type.with_shape((1, *rows.type.shape[1:])),
        )  # fmt: skip
        result: Value = b.reshape(piece, result=rows.type.with_shape(rows.type.shape[1:]))
        return result

    def _set(
        self, b: Builder, failed: Value, number: int, values: Sequence[Value], state: list[Value]
    ) -> list[Value]:
        """Return the state with a failed check, unless another one failed before."""
        code = state[0]
        is_new = b.and_(failed, b.eq(code, b.full(0, CODE)))
        result = list(state)
        result[0] = b.select(is_new, b.full(number, CODE), code)
        at = self.first_value[number - 1]
        for i, value in enumerate(values):
            wide = b.broadcast(is_new, dims=(), result=value.type.with_dtype("bool"))
            result[at + i] = b.select(wide, value, state[at + i])
        return result

    def _run_nested(self, b: Builder, op: Op, state: list[Value]) -> tuple[Op, list[Value]]:
        after = [Value(x.type, self.names.fresh(x.name)) for x in state]
        if op.spec is specs.case:
            blocks = tuple(self._run_branch(block, state) for block in op.blocks)
            return replace(op, blocks=blocks, results=(*op.results, *after)), after
        if op.spec is specs.checkpoint:
            block = self._run_branch(op.blocks[0], state)
            return replace(op, blocks=(block,), results=(*op.results, *after)), after
        if op.spec is specs.scan:
            carries = op.attrs["carries"]
            body = self._run_loop_body(op.blocks[0], carries, None)
            return replace(
                op,
                operands=(*op.operands[:carries], *state, *op.operands[carries:]),
                results=(*op.results[:carries], *after, *op.results[carries:]),
                blocks=(body,),
                attrs={**op.attrs, "carries": carries + len(state)},
            ), after
        if op.spec is specs.while_:
            return self._run_while(b, op, state, after)
        raise UnsupportedCheckError(
            f"{op.name} %{op.results[0].name if op.results else ''}: a check inside of it cannot "
            "become a result; call checkify inside of the function, or without the check"
        )

    def _run_branch(self, block: Block, state: list[Value]) -> Block:
        ops, state = self.run(block.ops, state)
        return Block(block.params, tuple(ops), (*block.returns, *state))

    def _run_loop_body(self, body: Block, carries: int, condition: Block | None) -> Block:
        """Return the body of a loop with the state behind its carries.

        The condition of a `while` is checked for the values of the next iteration.
        """
        first = [Value(CODE, self.names.fresh("code"))]
        first += [Value(type, self.names.fresh("value")) for type in self.types]
        ops, state = self.run(body.ops, first)
        if condition is not None:
            more, state = self._check_condition(condition, body.returns, state)
            ops += more
        return Block(
            (*body.params[:carries], *first, *body.params[carries:]),
            tuple(ops),
            (*body.returns[:carries], *state, *body.returns[carries:]),
        )

    def _check_condition(
        self, condition: Block, values: Sequence[Value], state: list[Value]
    ) -> tuple[list[Op], list[Value]]:
        copied = Builder(self.names)
        inline(copied, condition, values)
        return self.run(copied.ops, state)

    def _run_while(
        self, b: Builder, op: Op, state: list[Value], after: list[Value]
    ) -> tuple[Op, list[Value]]:
        condition, body = op.blocks
        ops, state = self._check_condition(condition, op.operands, state)
        for each in ops:
            b.append(each)
        unused = [Value(x.type, self.names.fresh(x.name)) for x in state]
        plain, _ = self.run(condition.ops, unused)
        return replace(
            op,
            operands=(*op.operands, *state),
            results=(*op.results, *after),
            blocks=(
                Block((*condition.params, *unused), tuple(plain), condition.returns),
                self._run_loop_body(body, len(op.operands), condition),
            ),
        ), after


def _value_types(op: Op) -> tuple[TensorType, ...]:
    """Return the types of the values of a message, without the dimensions of a batch."""
    batch = CallbackAttributes.of(op).batch
    return tuple(x.type.with_shape(x.type.shape[batch:]) for x in op.operands[1:])


def _may_make_nan(op: Op) -> bool:
    if op.spec in RETURNING:
        return False  # The operations inside are checked.
    return bool(op.operands) and any(x.type.dtype in INEXACT for x in op.results)


def _index_check(op: Op) -> _AutomaticCheck | None:
    """Return the check of all indices of an operation; `None` if it has none."""
    if not _windows(op):
        return None
    text = (
        f"out-of-bounds indexing for array of shape {op.operands[0].type.shape}: index {{}} is out "
        "of bounds for axis {} with size {}. "
    )
    dtype = (op.operands[1] if op.spec in INDEXED else op.operands[-1]).type.dtype
    types = TensorType((), dtype), TensorType((), "i32"), TensorType((), "i64")
    return _AutomaticCheck(Check(text), "index", types)


def _windows(op: Op) -> dict[int, int]:
    """Return the size of the window along each indexed dimension of the first operand."""
    if op.spec is specs.dynamic_slice:
        return dict(enumerate(op.result.type.shape))
    if op.spec is specs.dynamic_update_slice:
        return dict(enumerate(op.operands[1].type.shape))
    if op.spec not in INDEXED:
        return {}
    dims = INDEXED[op.spec].of(op).dims
    window = (op.result if op.spec is specs.gather else op.operands[2]).type
    absent = {*dims.dropped, *dims.operand_batching}
    kept = [dim for dim in range(op.operands[0].type.rank) if dim not in absent]
    sizes = {dim: window.shape[at] for dim, at in zip(kept, dims.window, strict=True)}
    return {dim: sizes.get(dim, 1) for dim in dims.index_map}


def _index_vectors(b: Builder, op: Op) -> Value:
    """Return the index vectors of an operation, in the last dimension."""
    if op.spec in INDEXED:
        return op.operands[1]
    starts = op.operands[1:] if op.spec is specs.dynamic_slice else op.operands[2:]
    parts = [b.reshape(x, result=x.type.with_shape((1,))) for x in starts]
    result: Value = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=0)
    return result


INDEXED: dict[OpSpec, type[GatherAttributes] | type[ScatterAttributes]] = {
    specs.gather: GatherAttributes,
    specs.scatter: ScatterAttributes,
}
"""Operations with vectors of indices, and their attributes."""


def _evaluate(b: Builder, op: Op, check: _AutomaticCheck) -> tuple[Value, list[Value]]:
    """Return which elements fail an automatic check, and the values of its message."""
    if check.kind == "div":
        divisor = op.operands[1]
        return b.eq(divisor, b.full(0, divisor.type)), []
    if check.kind == "index":
        return _evaluate_index_check(b, op)
    failed = [_is_any(b, b.ne(x, x)) for x in op.results if x.type.dtype in INEXACT]
    result = failed[0]
    for each in failed[1:]:
        result = b.or_(result, each)
    return result, []


def _evaluate_index_check(b: Builder, op: Op) -> tuple[Value, list[Value]]:
    """Return which components of the index vectors are out of bounds; and the components, the
    dimensions that they index, and the sizes of these."""
    vectors, windows = _index_vectors(b, op), _windows(op)
    shape, index = op.operands[0].type.shape, vectors.type
    last = index.rank - 1

    def along(numbers: Sequence[int], dtype: str) -> Value:
        table = np.asarray(numbers, TensorType((), dtype).numpy)
        row = b.constant(value=Dense(table), result=TensorType(table.shape, dtype))
        result: Value = b.broadcast(row, dims=(last,), result=index.with_dtype(dtype))
        return result

    # Negative limits, of windows larger than the array, cannot be compared as unsigned numbers.
    wide = b.convert(vectors, result=index.with_dtype("i64"))
    below = b.lt(wide, b.full(0, wide.type))
    limits = along([shape[dim] - window for dim, window in windows.items()], "i64")
    sizes = along([shape[dim] for dim in windows], "i64")
    failed = b.or_(below, b.gt(wide, limits))
    return failed, [vectors, along([*windows], "i32"), sizes]


def _is_any(b: Builder, x: Value) -> Value:
    result: Value = b.any(x, dims=tuple(range(x.type.rank))) if x.type.rank else x
    return result
