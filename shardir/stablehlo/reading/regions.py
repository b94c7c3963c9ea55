"""Reading of operations with regions."""

from dataclasses import replace
from math import prod
from typing import Any

from lark import Token

from shardir import (
    ops as ops,  # declares the operations
    ops as specs,
)
from shardir.errors import count_noun
from shardir.ir.module import Value
from shardir.ir.operation import Symbol
from shardir.ir.types import COMPLEX, FLOATS, TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import (
    OperationReader,
    UnsupportedOperation,
    register_reader,
    rename_results,
)
from shardir.stablehlo.reading.composed import to_total_order
from shardir.stablehlo.reading.expansions.arithmetic import Tensor, tensors_of
from shardir.stablehlo.reading.expansions.scattering import scatter_by_region
from shardir.stablehlo.reading.expansions.window_reductions import Windows, combine_windows
from shardir.stablehlo.reading.formulas import (
    COMBINATIONS,
    KeyOrder,
    combination_of,
    key_orders,
    log_add_exp_formulas,
    order_formulas,
    position_formulas,
    region_formula as formula_of,
    region_formulas,
    split_pairs,
)
from shardir.stablehlo.reading.shapes import move_index_vectors_last, scatter_dims
from shardir.stablehlo.reading.vectorized_regions import inline_vectorized
from shardir.stablehlo.writing.regions import identity_literal
from shardir.stablehlo.writing.rules import STABLEHLO_NAMES

Values = tuple[Value, ...]
Ints = tuple[int, ...]

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min", "or": "any", "and": "all"}
ELEMENTWISE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum", "or": "or",
               "and": "and"}  # fmt: skip
"""The IR's elementwise operation for each combination of two elements."""


def is_identity(call: OperationReader, value: Value, combine: str) -> bool:
    """Return whether a value is known to be the identity of a combination."""
    number = call.reader.constant_of(value)
    if number is None:
        return False
    return bool(number == identity_literal(combine, value.type.dtype))


@register_reader("reduce")
def _reduce(call: OperationReader) -> Values:
    xs, inits = _reduction_operands(call)
    dims = call.dimensions(xs[0].type, "dimensions")
    names = _combinations(call, len(xs))
    if names is None:
        arg_extremum = _read_arg_extremum(call, xs, inits, dims)
        return emit_tree_reduction(call, xs, inits, dims) if arg_extremum is None else arg_extremum
    if any(c in ("or", "and") and x.type.dtype != "bool" for c, x in zip(names, xs, strict=True)):
        return emit_tree_reduction(call, xs, inits, dims)
    if len(xs) > 1:
        values = [
            _reduce_independently(call, x, init, combine, dims)
            for x, init, combine in zip(xs, inits, names, strict=True)
        ]
        return rename_results(call, values)
    (x,), (init,), (combine,) = xs, inits, names
    if is_identity(call, init, combine):
        call.reader.mark_removable(init)
        return call.emit(REDUCTIONS[combine], x, dims=dims)
    reduced = call.emit_step(REDUCTIONS[combine], x, dims=dims)
    start = call.emit_step("broadcast", init, result=reduced.type, dims=())
    return call.emit(ELEMENTWISE[combine], start, reduced)


def _reduce_independently(
    call: OperationReader, x: Value, init: Value, combine: str, dims: Ints
) -> Value:
    """Emit the reduction of one of several tensors that are reduced independently."""
    reduced = call.emit_step(REDUCTIONS[combine], x, dims=dims)
    start = call.emit_step("broadcast", init, result=reduced.type, dims=())
    return call.emit_step(ELEMENTWISE[combine], start, reduced)


def _reduction_operands(call: OperationReader) -> tuple[list[Value], list[Value]]:
    """Return the operands of a reduction and their initial values."""
    if call.pairs:
        return [call.reader.use(token) for token, _ in call.pairs], [v for _, v in call.pairs]
    half = len(call.operands) // 2
    if not half or len(call.operands) % 2:
        raise call.fail(
            f"{call.name} takes operands and as many initial values, got "
            f"{count_noun(len(call.operands), 'operand')}"
        )
    return call.operands[:half], call.operands[half:]


def _combinations(call: OperationReader, count: int) -> list[str] | None:
    """Return the combination of each operand; `None` if operands are combined jointly."""
    name = applied_operation(call)
    if name is not None:
        return [COMBINATIONS[name]] if name in COMBINATIONS else None
    try:
        returned = region_formulas(call, *region_of(call, 0))
    except UnsupportedOperation:
        return None
    names = [combination_of(formula, i) for i, formula in enumerate(returned)]
    if len(returned) != count:
        raise call.fail(
            f"its region returns {count_noun(len(returned), 'value')} for "
            f"{count_noun(count, 'operand')}"
        )
    combinations = [name for name in names if name is not None]
    return combinations if len(combinations) == count else None


def region_of(call: OperationReader, number: int) -> tuple[records.BlockRecord, list[Token]]:
    """Return a region and its parameters, the left ones first."""
    if len(call.blocks) <= number:
        raise call.fail(f"{call.name} lacks a region")
    block = call.blocks[number]
    if block.params:
        return block, [param.name for param in block.params]
    groups = [group for group in call.params if group]
    return block, split_pairs([param.name for group in groups for param in group])


def emit_tree_reduction(
    call: OperationReader, xs: list[Value], inits: list[Value], dims: Ints
) -> Values:
    """Emit a reduction by any computation as a tree: adjacent elements are combined repeatedly."""
    remaining_dims = tuple(d for d in range(xs[0].type.rank) if d not in dims)
    shape = tuple(xs[0].type.shape[d] for d in remaining_dims)
    size = prod(xs[0].type.shape[d] for d in dims)
    rows = [
        call.emit_step(
            "reshape",
            call.emit_step("transpose", x, perm=(*remaining_dims, *dims)),
            result=x.type.with_shape((*shape, size)),
        )
        for x in xs
    ]
    while size > 1:
        half = size // 2
        pairs = [_every_second(call, x, start, half) for start in (0, 1) for x in rows]
        combined = _apply_region(call, pairs)
        if size % 2:
            rest = [_every_second(call, x, size - 1, 1) for x in rows]
            combined = [
                call.emit_step("concatenate", x, y, dim=len(shape))
                for x, y in zip(combined, rest, strict=True)
            ]
        rows, size = combined, half + size % 2
    starts = [
        call.emit_step("broadcast", init, dims=(), result=x.type.with_shape(shape))
        for init, x in zip(inits, xs, strict=True)
    ]
    if not size:
        return rename_results(call, starts)
    last = [call.emit_step("reshape", x, result=x.type.with_shape(shape)) for x in rows]
    return rename_results(call, _apply_region(call, [*starts, *last]))


def _every_second(call: OperationReader, x: Value, start: int, count: int) -> Value:
    """Return every second element of the last dimension from `start` on."""
    front = (0,) * (x.type.rank - 1)
    return call.emit_step(
        "slice", x, starts=(*front, start), strides=(*(1 for _ in front), 2),
        result=x.type.with_shape((*x.type.shape[:-1], count)),
    )  # fmt: skip


def _apply_region(call: OperationReader, sides: list[Value]) -> list[Value]:
    """Return the results of a reduction's region for tensors: left operands, then right ones."""
    name = applied_operation(call)
    if name is None:
        return inline_vectorized(call, *region_of(call, 0), sides)
    ours = next((ours for ours, theirs in STABLEHLO_NAMES.items() if theirs == name), None)
    if ours is None:
        raise UnsupportedOperation(f"it applies {name}")
    return [call.emit_step(ours, *sides)]


def applied_operation(call: OperationReader) -> str | None:
    """Return the operation of `reduce(...) applies stablehlo.add`, if it has this form."""
    words = [str(word) for word in call.words]
    return words[words.index("applies") + 1].rpartition(".")[2] if "applies" in words else None


def _read_arg_extremum(
    call: OperationReader, xs: list[Value], inits: list[Value], dims: Ints
) -> Values | None:
    """Read an argmax or argmin, a joint reduction of values and positions.

    Returns `None` for other computations.
    """
    if applied_operation(call) or len(xs) != 2 or len(dims) != 1 or len(call.results) != 2:
        return None
    counted = call.reader.maker_of(xs[1])
    if counted is None or counted.spec is not specs.iota or counted.attrs["dim"] != dims[0]:
        return None
    returned = region_formulas(call, *region_of(call, 0))
    dtype = xs[0].type.dtype
    for better, combine, name in (("GT", "max", "argmax"), ("LT", "min", "argmin")):
        right = returned in position_formulas(better, dtype)
        if right and is_identity(call, inits[0], combine) and not call.reader.constant_of(inits[1]):
            extreme = call.emit_step(combine, xs[0], dims=dims)
            indices = call.emit_step(name, xs[0], dim=dims[0], result=call.results[1])
            call.reader.mark_removable(*inits, xs[1])
            results = rename_results(call, [extreme, indices])
            call.reader.mark_removable(results[0])
            return results
    return None


@register_reader("reduce_window")
def _reduce_window(call: OperationReader) -> Values:
    xs, inits = _reduction_operands(call)
    windows = Windows.of(call, xs[0].type.rank)
    if len(xs) > 1:
        return _reduce_windows_by_region(call, xs, inits, windows)
    x, init = xs[0], inits[0]
    formula = formula_of(call, *region_of(call, 0))
    running = _cumulative_dimension(x.type, **windows.attrs)
    exponential = formula in log_add_exp_formulas()
    if exponential and {*windows.sizes} == {1} and 1 in x.type.shape:
        running = x.type.shape.index(1), False
    if exponential and running and call.reader.constant_of(init) == float("-inf"):
        call.reader.mark_removable(init)
        return call.emit("cumlogsumexp", x, dim=running[0], reverse=running[1])
    combine = combination_of(formula, 0)
    if combine not in ("add", "mul", "max", "min"):
        return _reduce_windows_by_region(call, xs, inits, windows)
    if not is_identity(call, init, combine):
        return _reduce_windows_from(call, x, init, windows, combine)
    call.reader.mark_removable(init)
    cumulative = {"add": "cumsum", "mul": "cumprod", "max": "cummax", "min": "cummin"}[combine]
    if running and not (combine == "add" and x.type.dtype == "bool"):
        return call.emit(cumulative, x, dim=running[0], reverse=running[1])
    return call.emit("reduce_window", x, op=Symbol(combine), **windows.attrs)


def _reduce_windows_from(
    call: OperationReader, x: Value, init: Value, windows: Windows, combine: str
) -> Values:
    """Emit a window reduction from an initial value that is not the identity.

    Padding consists of initial values; a sum or a product contains one for each padded element.
    """
    if combine in ("add", "mul"):
        padded, start = tensors_of(call, [x, init])
        x = windows.pad(padded, start).value
        windows = replace(windows, padding=((0, 0),) * x.type.rank,
                          base_dilation=(1,) * x.type.rank)  # fmt: skip
    reduced = call.emit_step("reduce_window", x, op=Symbol(combine), **windows.attrs)
    start_value = call.emit_step("broadcast", init, result=reduced.type, dims=())
    return call.emit(ELEMENTWISE[combine], start_value, reduced)


def _reduce_windows_by_region(
    call: OperationReader, xs: list[Value], inits: list[Value], windows: Windows
) -> Values:
    """Emit a window reduction by any computation."""

    def combine(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        sides = [x.value for x in (*left, *right)]
        return tensors_of(call, inline_vectorized(call, *region_of(call, 0), sides))

    reduced = combine_windows(tensors_of(call, xs), tensors_of(call, inits), windows, combine)
    return rename_results(call, [x.value for x in reduced])


def _cumulative_dimension(
    x: TensorType, window: Ints, strides: Ints, padding: Any, base_dilation: Ints,
    window_dilation: Ints,
) -> tuple[int, bool] | None:  # fmt: skip
    """Return the dimension of a cumulative reduction and whether it is reversed; else `None`."""
    if len(window) != x.rank:
        return None
    wide = [d for d, size in enumerate(window) if size > 1]
    if len(wide) != 1 or {*strides, *base_dilation, *window_dilation} != {1}:
        return None
    (dim,) = wide
    if window[dim] != x.shape[dim] or len(padding) != x.rank:
        return None
    rest = window[dim] - 1
    for reverse, pair in ((False, (rest, 0)), (True, (0, rest))):
        if all(pad == (pair if d == dim else (0, 0)) for d, pad in enumerate(padding)):
            return dim, reverse
    return None


@register_reader("sort")
def _sort(call: OperationReader) -> Values:
    if not call.operands:
        raise call.fail("sort takes at least 1 operand")
    block, params = region_of(call, 0)
    formula = formula_of(call, block, split_pairs(params))
    types = [value.type for value in call.operands]
    keys = next((n for n in range(1, len(types) + 1) if formula in order_formulas(types, n)), None)
    dim = call.integer("dimension", default=-1)
    attrs: dict[str, Any] = {
        "dim": dim if dim >= 0 else dim + types[0].rank,
        "stable": call.types.flag(call.attrs["is_stable"]) if call.has("is_stable") else False,
    }
    if keys is not None:
        return call.emit("sort", *call.operands, keys=keys, **attrs)
    orders = key_orders(formula, len(types))
    if orders is None:
        raise UnsupportedOperation("it sorts with an unknown comparison")
    leading = [_ascending_key(call, call.operands[order.operand], order) for order in orders]
    operands = (*leading, *call.operands)
    values = tuple(Value(x.type, call.reader.names.fresh("")) for x in operands)
    attrs["keys"] = len(leading)
    call.reader.append("sort", operands, values, attrs, (), call.written.loc)
    return rename_results(call, list(values[len(leading) :]))


def _ascending_key(call: OperationReader, x: Value, order: KeyOrder) -> Value:
    """Return a tensor whose ascending order is an order of `x`."""
    if x.type.dtype in COMPLEX:
        raise UnsupportedOperation("it sorts with an unknown comparison")
    if call.reader.module.keep_opaque:
        raise UnsupportedOperation("it corresponds to several operations")
    key = to_total_order(call, x) if order.is_total else x
    if not order.is_descending:
        return key
    return call.emit_step("neg" if key.type.dtype in FLOATS else "not", key)


@register_reader("scatter")
def _scatter(call: OperationReader) -> Values:
    combine = None
    if len(call.operands) == 3:
        formula = formula_of(call, *region_of(call, 0))
        combine = "set" if formula == "b0" else combination_of(formula, 0)
        if formula == "subtract(a0,b0)":
            call.operands[2], combine = call.emit_step("neg", call.operands[2]), "add"
        if call.operands[0].type.dtype == "bool":
            combine = {"and": "min", "or": "max"}.get(str(combine), combine)
    if combine not in ("add", "set", "mul", "min", "max"):
        return scatter_by_region(call, *region_of(call, 0))
    x, indices, updates = call.operands
    dims, vector = scatter_dims(call)
    indices = move_index_vectors_last(call, indices, vector)
    return call.emit("scatter", x, indices, updates, **dims, op=Symbol(combine))


@register_reader("select_and_scatter")
def _select_and_scatter(call: OperationReader) -> Values:
    x, source, init = call.take_operands(3)
    better = formula_of(call, *region_of(call, 0))
    added = formula_of(call, *region_of(call, 1))
    how = {"GE(a0,b0)": "max", "LE(a0,b0)": "min"}.get(better)
    if how is None or combination_of(added, 0) != "add" or not is_identity(call, init, "add"):
        raise UnsupportedOperation("it selects or scatters with an unknown computation")
    call.reader.mark_removable(init)
    ones = (1,) * x.type.rank
    return call.emit(
        "select_and_scatter",
        x,
        source,
        op=Symbol(how),
        window=call.integers("window_dimensions", default=ones),
        strides=call.integers("window_strides", default=ones),
        padding=call.pairs_of("padding", ((0, 0),) * x.type.rank),
        base_dilation=ones,
        window_dilation=ones,
    )


@register_reader("while")
def _while(call: OperationReader) -> Values:
    if len(call.blocks) != 2:
        raise call.fail("while has a condition and a body")
    inits = call.operands or [value for _, value in call.pairs]
    blocks = []
    for block in call.blocks:
        params = call.reader.params_of(block)
        if not params and call.pairs:
            params = [(token, value.type, None) for token, value in call.pairs]
        blocks.append(call.reader.read_block(block, params))
    return call.emit("while", *inits, blocks=tuple(blocks))


@register_reader("case")
def _case(call: OperationReader) -> Values:
    return _read_branches(call, call.blocks)


@register_reader("if")
def _if(call: OperationReader) -> Values:
    """Read an `if` as a case, whose branch for false comes first."""
    if len(call.blocks) != 2:
        raise call.fail("if has a branch for true and one for false")
    return _read_branches(call, call.blocks[::-1])


def _read_branches(call: OperationReader, blocks: list[records.BlockRecord]) -> Values:
    branches = tuple(
        call.reader.read_block(block, call.reader.params_of(block)) for block in blocks
    )
    return call.emit("case", *call.take_operands(1), blocks=branches)
