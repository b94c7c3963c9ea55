"""Lowering rules of control flow: `RepeatWhileTrue`, `popops::countedLoop`, `If`, `Switch`.

Carried values are in their own variables, which each iteration reads and overwrites. A value that
is a view of a carried variable would change with it, so such values are copied before the variables
are assigned.
"""

from collections.abc import Sequence

from shardir.backends.ipu.codegen.device_types import UNSLICEABLE_TYPES, physical_type
from shardir.backends.ipu.codegen.emitter import ProgramEmitter, reshape_view
from shardir.backends.ipu.lowering.indexing import unsliceable_error
from shardir.backends.ipu.lowering.lowering_table import lower_operation, lowers
from shardir.ir.module import Block, Op, Value


def write_block(e: ProgramEmitter, block: Block) -> None:
    """Write the statements of a block's operations."""
    for op in block.ops:
        lower_operation(e, op)


def assign_variables(
    e: ProgramEmitter, targets: Sequence[str], values: Sequence[Value], kept: Sequence[Value]
) -> None:
    """Copy values into variables in parallel; `kept` are the values stored in these variables.

    A value that is a view of one of the variables is copied to a temporary first, unless it is that
    variable itself.
    """
    sources = []
    for value, own in zip(values, kept, strict=True):
        if value is own:
            sources.append("")
            continue
        text = e.text(value)
        if value in e.multi_root_views or e.roots.get(value, value) in kept:
            held = e.temporary(f"{value.name}_before", e.variable_text(value.type, e.label(value)))
            e.add(f"{e.sequence}.add(Copy({text}, {held}));")
            text = held
        sources.append(text)
    for target, source in zip(targets, sources, strict=True):
        if source:
            e.add(f"{e.sequence}.add(Copy({source}, {target}));")


def _define_carried(
    e: ProgramEmitter, values: Sequence[Value], results: Sequence[Value]
) -> list[str]:
    """Create variables initialized with the values, and return their names."""
    names = []
    for value, result in zip(values, results, strict=True):
        e.define(result, e.variable_text(result.type, e.label(result)))
        e.add(f"{e.sequence}.add(Copy({e.text(value)}, {e.text(result)}));")
        names.append(e.text(result))
    return names


@lowers("while")
def _while(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    condition, body = op.blocks
    names = _define_carried(e, op.operands, op.results)
    first = op.results[0].name if op.results else "loop"
    tested, repeated = (
        e.unused_identifier(f"{first}_condition"),
        e.unused_identifier(f"{first}_body"),
    )
    e.add(f"Sequence {tested};")
    for param, result in zip(condition.params, op.results, strict=True):
        e.alias(param, e.text(result), result)
    with e.use_sequence(tested):
        write_block(e, condition)
        predicate = condition.returns[0]
        flag = e.text(predicate)
        if predicate in e.roots or predicate in condition.params:
            held = e.temporary(
                f"{first}_goes_on", e.variable_text(predicate.type, e.label(predicate))
            )
            e.add(f"{e.sequence}.add(Copy({flag}, {held}));")
            flag = held
    e.add(f"Sequence {repeated};")
    for param, result in zip(body.params, op.results, strict=True):
        e.alias(param, e.text(result), result)
        e.roots[param] = result
    with e.use_sequence(repeated), e.open_block():
        write_block(e, body)
        _update_carried(e, body, names, op.results)
    e.add(f"{e.sequence}.add(RepeatWhileTrue({tested}, {flag}, {repeated}));")


def _update_carried(
    e: ProgramEmitter, body: Block, names: Sequence[str], carried: Sequence[Value]
) -> None:
    """Write the copies from an iteration's results to the carried variables."""
    count = len(carried)
    kept: list[Value] = []
    for value, param, own in zip(body.returns[:count], body.params[:count], carried, strict=True):
        kept.append(value if value is param else own)
    assign_variables(e, names, body.returns[:count], [*kept])


@lowers("scan")
def _scan(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    (body,) = op.blocks
    for value in (*op.operands[op.attrs["carries"] :], *op.results[op.attrs["carries"] :]):
        if value.type.dtype in UNSLICEABLE_TYPES:
            raise unsliceable_error(e, op, value.type.dtype)
    carries, length = op.attrs["carries"], op.attrs["length"]
    names = _define_carried(e, op.operands[:carries], op.results[:carries])
    stacked = op.results[carries:]
    for result in stacked:
        e.define(result, e.variable_text(result.type, e.label(result)))
    round_, inner = e.unused_identifier("round"), e.unused_identifier("body")
    e.add(f"{e.sequence}.add(popops::countedLoop(graph, {length}, [&](const Tensor &{round_}) {{")
    with e.indent(), e.use_sequence(inner):
        e.add(f"Sequence {inner};")
        place = round_
        if op.attrs.get("reverse"):
            turned = f"pe::Const({length - 1}u) - pe::_1"
            place = e.temporary("place", e.map_text(turned, [round_], '"place"'))
        for param, result in zip(body.params[:carries], op.results[:carries], strict=True):
            e.alias(param, e.text(result), result)
            e.roots[param] = result
        for param, x in zip(body.params[carries:], op.operands[carries:], strict=True):
            arguments = f"{e.text(x)}, {place}, {{0}}, {{1}}, {e.sequence}, {e.label(param)}"
            shape = physical_type(param.type).shape
            row = reshape_view(f"popops::dynamicSlice(graph, {arguments})", (1, *shape), shape)
            e.define(param, row)
        write_block(e, body)
        for value, result in zip(body.returns[carries:], stacked, strict=True):
            shape = physical_type(value.type).shape
            row = reshape_view(e.text(value), shape, (1, *shape))
            arguments = f"{e.text(result)}, {row}, {place}, {{0}}, {{1}}, {e.sequence}"
            e.add(f"popops::dynamicUpdate(graph, {arguments}, {e.label(result)});")
        _update_carried(e, body, names, op.results[:carries])
        e.add(f"return {inner};")
    e.add("}));")


@lowers("case")
def _case(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    index = op.operands[0]
    for result in op.results:
        e.define(result, e.variable_text(result.type, e.label(result)))
    first = op.results[0].name if op.results else "choice"
    branches = []
    for number, block in enumerate(op.blocks):
        name = e.unused_identifier(f"{first}_branch_{number}")
        e.add(f"Sequence {name};")
        with e.use_sequence(name), e.open_block():
            write_block(e, block)
            for value, result in zip(block.returns, op.results, strict=True):
                e.add(f"{e.sequence}.add(Copy({e.text(value)}, {e.text(result)}));")
        branches.append(name)
    flag = reshape_view(e.text(index), (), ())
    if index.type.dtype == "bool":
        e.add(f"{e.sequence}.add(If({flag}, {branches[1]}, {branches[0]}));")
        return
    if len(branches) == 1:
        e.add(f"{e.sequence}.add({branches[0]});")
        return
    cases = ", ".join(f"{{{i}, {name}}}" for i, name in enumerate(branches[:-1]))
    e.add(f"{e.sequence}.add(Switch({flag}, {{{cases}}}, {branches[-1]}));")
