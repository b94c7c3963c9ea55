"""Trip counts of loops in HLO."""

import re

from shardir.hlo.module import Computation, HloModule, Instruction, parse_number

_KNOWN_TRIP_COUNT = re.compile(r'"known_trip_count":\s*\{\s*"n":\s*"?(\d{1,18})"?\s*\}')
_COPIES = ("copy", "bitcast", "copy-done", "copy-start", "convert")


def trip_count(module: HloModule, caller: Computation, loop: Instruction) -> int | None:
    """Return the number of iterations of a `while`; `None` if it is not a constant.

    XLA's passes write the number of a counted loop into its backend configuration. Where it is
    missing, a loop is counted here if its condition compares an element of the tuple with a
    constant, the element starts at a constant, and the body adds a constant to it.
    """
    if match := _KNOWN_TRIP_COUNT.search(loop.attributes.get("backend_config", "")):
        return int(match[1])
    condition = _find_computation(module, loop, "condition")
    body = _find_computation(module, loop, "body")
    if condition is None or body is None or len(loop.operands) != 1:
        return None
    compare = condition.instructions[condition.root]
    is_less = compare.opcode == "compare" and compare.attributes.get("direction") == "LT"
    if not is_less or len(compare.operands) != 2:
        return None
    index = _element_index(condition, compare.operands[0])
    limit = _constant(condition, compare.operands[1])
    if index is None or limit is None:
        return None
    start = _constant(caller, _element(caller, loop.operands[0], index))
    step = _step(body, index)
    if start is None or step is None or step <= 0:
        return None
    return max(-(-(limit - start) // step), 0)


def _find_computation(module: HloModule, loop: Instruction, name: str) -> Computation | None:
    return module.computations.get(loop.attributes.get(name, "").lstrip("%"))


def _step(body: Computation, index: int) -> int | None:
    """Return the constant that the body adds to an element of its tuple."""
    add = body.instructions.get(_element(body, body.root, index))
    if add is None or add.opcode != "add" or len(add.operands) != 2:
        return None
    for one, other in (add.operands, add.operands[::-1]):
        if _element_index(body, one) == index:
            return _constant(body, other)
    return None


def _element(computation: Computation, name: str, index: int) -> str:
    """Return the operand of a tuple instruction; an empty name if it is no tuple."""
    instruction = computation.instructions.get(name)
    if instruction is None or instruction.opcode != "tuple" or index >= len(instruction.operands):
        return ""
    return instruction.operands[index]


def _element_index(computation: Computation, name: str) -> int | None:
    """Return which element of the parameter an instruction is."""
    instruction = _without_copies(computation, name)
    if instruction is None or instruction.opcode != "get-tuple-element" or not instruction.operands:
        return None
    source = _without_copies(computation, instruction.operands[0])
    if source is None or source.opcode != "parameter":
        return None
    return parse_number(instruction.attributes.get("index", ""))


def _constant(computation: Computation, name: str) -> int | None:
    instruction = _without_copies(computation, name)
    if instruction is None or instruction.opcode != "constant":
        return None
    text = instruction.operands[0] if instruction.operands else ""
    number = parse_number(text.removeprefix("-"))
    return number if number is None or not text.startswith("-") else -number


def _without_copies(computation: Computation, name: str) -> Instruction | None:
    instruction = computation.instructions.get(name)
    for _ in range(len(computation.instructions)):
        if instruction is None or instruction.opcode not in _COPIES or not instruction.operands:
            break
        instruction = computation.instructions.get(instruction.operands[0])
    return instruction
