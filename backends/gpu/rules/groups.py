"""Fused groups: a function that launches a Triton kernel, and a torch reference.

Groups with the same computation on tensors of the same types share their functions.
"""

import re
from collections.abc import Sequence
from typing import Any

from shardir.backends.gpu.kernels import Kernel, write_kernel
from shardir.backends.gpu.layout import tidied
from shardir.backends.gpu.lowering import lower, lowers
from shardir.backends.gpu.names import Names, identifier
from shardir.backends.gpu.rules.control import inline
from shardir.backends.gpu.writer import WIDTH, Writer
from shardir.ir.module import Op, Value

FREE = ("broadcast", "reshape", "iota", "constant")
"""Operations that cost nothing within a kernel and do not justify one."""


@lowers("fused", lazy=True)
def _fused(w: Writer, op: Op) -> str | None:
    """Lower a fused group; a group of one operation is written in place, as torch has a kernel for
    it.
    """
    (block,) = op.blocks
    if not op.operands or sum(step.name not in FREE for step in block.ops) < 2:
        inline(w, op, op.blocks[0])
        return None
    function = w.needs.groups.get(key := _key(op))
    if function is None:
        function = w.needs.groups[key] = _define(w, op)
    return f"{function}({', '.join(w.name(value) for value in op.operands)})"


def _key(op: Op) -> Any:
    """Return a key of the group's computation without names; the `repr` of numbers distinguishes
    0.0 from -0.0.
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
    params = tuple(param.type for param in block.params)
    return params, steps, tuple(numbers[value] for value in block.returns)


def _define(w: Writer, op: Op) -> str:
    """Write the functions of a group, and return the name of the function to call."""
    name = w.names.reserved(f"compute_{identifier(op.results[0].name)}")
    kernel = write_kernel(op, name)
    if not isinstance(kernel, Kernel):
        text = _reference(w, op, name, f"No Triton kernel: {kernel.reason}.")
        w.needs.functions.append(text)
        return name
    define(w, kernel, name, _reference(w, op, f"{name}_reference", "The same in plain torch."))
    return name


def define(w: Writer, kernel: Kernel, name: str, reference: str) -> None:
    """Add a kernel, the function `<name>_reference`, and the launching function `name`."""
    for helper in kernel.helpers:
        w.needs.kernels[helper] = None
    for line in kernel.imports:
        w.needs.imports[line] = None
    w.needs.functions.append(
        f"{kernel.text.rstrip()}\n\n\n{reference}\n\n\n{_launch(kernel, name)}"
    )


def _reference(w: Writer, op: Op, name: str, says: str) -> str:
    """Return the block in plain torch, one line per operation, with the names of the group's
    values.
    """
    inner = Writer(Names(w.names.taken, inner=True), w.needs, lower, w.mesh)
    (block,) = op.blocks
    given = zip((*op.operands, *op.results), (*block.params, *block.returns), strict=True)
    for outer, value in given:
        inner.names.call(value, outer.name)
    params = [inner.names[param] for param in block.params]
    inner.block(block)
    returned = ", ".join(inner.name(value) for value in block.returns)
    body = inner.text(block.returns)
    lines = [f"def {name}({', '.join(params)}):", f'    """{says}"""']
    if re.search(r"\bdevice\b", body):
        lines.append(f"    device = {params[0]}.device")
    text = "\n".join([*lines, *([body] if body else []), f"    return {returned}"])
    return tidied(text, WIDTH)


def _launch(kernel: Kernel, name: str) -> str:
    """Return the text of the function that `main` calls."""
    operands = ", ".join(kernel.operands)
    lines = [
        f"def {name}({operands}):",
        f"    if not ({kernel.operands[0]}.is_cuda or INTERPRETED):",
        f"        return {name}_reference({operands})",
        *(f"    {line}" for line in _contiguous(kernel.operands)),
        *(f"    {line}" if line else "" for line in kernel.launch.splitlines()),
        f"    return {', '.join(kernel.results)}",
    ]
    return tidied("\n".join(lines), WIDTH)


def _contiguous(operands: Sequence[str]) -> Sequence[str]:
    """Return the lines that make the operands contiguous, as kernels require."""
    if len(operands) <= 2:
        return [f"{x} = {x}.contiguous()" for x in operands]
    names = ", ".join(operands)
    return [f"{names} = (x.contiguous() for x in ({names}))"]
