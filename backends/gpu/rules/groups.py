"""Fused groups and products: a function that launches a Triton kernel, and a torch reference.

Groups with the same computation on tensors of the same types share their functions.
"""

import re

from shardir import ops
from shardir.backends.gpu.function_writer import MAX_LINE_CHARACTERS, FunctionWriter
from shardir.backends.gpu.identifiers import FunctionNames, make_identifier
from shardir.backends.gpu.kernels import KernelText, find_sum_operands, write_kernel
from shardir.backends.gpu.line_wrapping import wrap_code
from shardir.backends.gpu.lowering import lower_operation, lowers
from shardir.backends.gpu.rules.control import inline_block
from shardir.ir.module import Op, Value

FREE_OPERATIONS = (ops.broadcast, ops.reshape, ops.iota, ops.constant)
"""Operations that cost nothing within a kernel and do not justify one."""


@lowers("fused", "fused_products", lazy=True)
def _fused_group(w: FunctionWriter, op: Op) -> str | None:
    """Lower a fused group; a group of one operation is written in place, as torch has a kernel for
    it.
    """
    (block,) = op.blocks
    if not op.operands or sum(step.spec not in FREE_OPERATIONS for step in block.ops) < 2:
        inline_block(w, op, op.blocks[0])
        return None
    sums = find_sum_operands(op, w.makers)
    function = w.needs.groups.get(key := (_group_key(op), sums))
    if function is None:
        function = w.needs.groups[key] = _define_group(w, op, sums)
    return f"{function}({', '.join(w.name(value) for value in op.operands)})"


def _group_key(op: Op) -> object:
    """Return a key of the group's computation without names; the `repr` of numbers distinguishes
    0.0 from -0.0. Kernels load an operand that is given twice only once, so the key states which
    operands are equal.
    """
    (block,) = op.blocks
    numbers: dict[Value, int] = {}
    for value in block.values():
        numbers[value] = len(numbers)
    steps = tuple(
        (
            step.name,
            tuple(numbers[x] for x in step.operands),
            tuple((name, repr(step.attrs[name])) for name in sorted(step.attrs)),
            tuple(y.type for y in step.results),
        )
        for step in block.ops
    )
    params = tuple(
        (op.operands.index(operand), param.type)
        for operand, param in zip(op.operands, block.params, strict=True)
    )
    return params, steps, tuple(numbers[value] for value in block.returns)


def _define_group(w: FunctionWriter, op: Op, sums: frozenset[int]) -> str:
    """Write the functions of a group, and return the name of the function to call.

    `sums` are the positions of operands that are sums of exponentials.
    """
    name = w.names.reserve(f"compute_{make_identifier(op.results[0].name)}")
    kernel = write_kernel(op, name, precision=w.needs.precision, sums=sums)
    if not isinstance(kernel, KernelText):
        text = _reference_text(w, op, name, f"No Triton kernel: {kernel.reason}.")
        w.needs.functions.append(text)
        return name
    reference = _reference_text(w, op, f"{name}_reference", "The same in plain torch.")
    w.define_kernel(kernel, name, reference)
    return name


def _reference_text(w: FunctionWriter, op: Op, name: str, says: str) -> str:
    """Return the block in plain torch, one line per operation, with the names of the group's
    values.
    """
    inner = FunctionWriter(
        FunctionNames(w.names.taken, inner=True), w.needs, lower_operation, w.mesh
    )
    (block,) = op.blocks
    given = zip((*op.operands, *op.results), (*block.params, *block.returns), strict=True)
    for outer, value in given:
        inner.names.name_after(value, outer.name)
    params = [inner.names[param] for param in block.params]
    inner.write_block(block)
    returned = ", ".join(inner.name(value) for value in block.returns)
    body = inner.text(block.returns)
    lines = [f"def {name}({', '.join(params)}):", f'    """{says}"""']
    if re.search(r"\bdevice\b", body):
        lines.append(f"    device = {params[0]}.device")
    text = "\n".join([*lines, *([body] if body else []), f"    return {returned}"])
    return wrap_code(text, MAX_LINE_CHARACTERS)
