"""Control flow: Python loops and branches, whose conditions the host reads from the device."""

from collections.abc import Sequence

from shardir.backends.gpu.dtypes import TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import shape_text
from shardir.ir.module import Block, Op, Value


def assign_values(
    w: FunctionWriter, targets: Sequence[Value], sources: Sequence[Value], comment: str = ""
) -> None:
    """Assign the sources to all targets in one statement."""
    if not targets:
        return
    names = [w.names[target] for target in targets]
    if names != [w.names[source] for source in sources]:
        given = ", ".join(w.name(source) for source in sources)
        w.append_line(f"{', '.join(names)} = {given}", comment, targets)


@lowers("while", lazy=True)
def _while(w: FunctionWriter, op: Op) -> None:
    """Lower `while`; carried values have the names of the results."""
    condition, body = op.blocks
    assign_values(w, op.results, op.operands, _types(op))
    for block in (condition, body):
        for seen, result in zip(block.params, op.results, strict=True):
            w.alias(seen, result)
    w.append_line("while True:")
    with w.indent():
        w.write_block(condition)
        w.append_line(f"if not {w.name(condition.returns[0])}.item():")
        with w.indent():
            w.append_line("break")
        w.write_block(body)
        assign_values(w, op.results, body.returns)


@lowers("scan", lazy=True)
def _scan(w: FunctionWriter, op: Op) -> None:
    """Lower `scan`; carried values are as in `while`, stacked results are allocated before the
    loop.
    """
    (body,) = op.blocks
    count, length = op.attrs["carries"], op.attrs["length"]
    carried, stacked = op.results[:count], op.results[count:]
    types = ", ".join(str(result.type) for result in carried)
    assign_values(w, carried, op.operands[:count], f"{op.name}: {types}")
    for seen, result in zip(body.params[:count], carried, strict=True):
        w.alias(seen, result)
    for result in stacked:
        to = result.type
        made = f"torch.empty({shape_text(to.shape)}, dtype={TORCH_DTYPES[to.dtype]}, device=device)"
        w.append_line(f"{w.names[result]} = {made}", f"{op.name}: {to}", [result])
    step = w.names.make_fresh("step")
    steps = f"reversed(range({length}))" if op.attrs.get("reverse") else f"range({length})"
    w.append_line(f"for {step} in {steps}:")
    with w.indent():
        for part, x in zip(body.params[count:], op.operands[count:], strict=True):
            w.append_line(f"{w.names[part]} = {w.name(x)}[{step}]", str(part.type), [part])
        w.write_block(body)
        for result, value in zip(stacked, body.returns[count:], strict=True):
            w.append_line(f"{w.name(result)}[{step}] = {w.name(value)}")
        assign_values(w, carried, body.returns[:count])


@lowers("case", lazy=True)
def _case(w: FunctionWriter, op: Op) -> None:
    index = w.name(op.operands[0])
    if op.operands[0].type.dtype == "bool":
        heads = [f"if not {index}.item():", "else:"]
    else:
        branch = w.names.make_fresh("branch")
        w.append_line(f"{branch} = {index}.item()", "case: which branch")
        last = len(op.blocks) - 1
        heads = [f"{'el' if i else ''}if {branch} == {i}:" for i in range(last)] + ["else:"]
    if len(op.blocks) == 1:
        w.write_block(op.blocks[0])
        assign_values(w, op.results, op.blocks[0].returns, _types(op))
        return
    for head, block in zip(heads, op.blocks, strict=True):
        w.append_line(head)
        with w.indent():
            _alias_returns(w, op, block)
            w.write_block(block)
            assign_values(w, op.results, block.returns, _types(op))


def _types(op: Op) -> str:
    return f"{op.name}: {', '.join(str(result.type) for result in op.results)}"


@lowers("call", "checkpoint", "custom-jvp", "custom-vjp", lazy=True)
def _region(w: FunctionWriter, op: Op) -> None:
    """Write the first block in place; other blocks define derivatives."""
    inline_block(w, op, op.blocks[0])


def inline_block(w: FunctionWriter, op: Op, block: Block) -> None:
    """Apply a block to the operands; its return values have the names of the
    operation's results.
    """
    for param, operand in zip(block.params, op.operands, strict=True):
        w.alias(param, operand)
    _alias_returns(w, op, block)
    w.write_block(block)
    for result, value in zip(op.results, block.returns, strict=True):
        w.alias(result, value)


def _alias_returns(w: FunctionWriter, op: Op, block: Block) -> None:
    """Give the values that a block computes and returns the names of the operation's results."""
    made = {value for step in block.ops for value in step.results}
    for result, value in zip(op.results, block.returns, strict=True):
        if value in made:
            made.remove(value)
            w.alias(value, result)
