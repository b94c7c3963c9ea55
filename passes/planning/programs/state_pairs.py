"""State of a step: the arguments whose next value is a result.

The next value of an argument has its type and is computed from it by elementwise operations alone,
such as `w - rate * gradient`. A plan shards it like the argument, so that steps can follow each
other. Results whose sharding is stated keep it.
"""

from shardir.cost.memory import used_by
from shardir.ir.module import Function, Op, Value


def find_state_pairs(function: Function, count: int | None = None) -> dict[int, int]:
    """Return the number of the argument for each result that is the next value of one; the first
    `count` parameters are arguments."""
    body = function.body
    makers = {value: op for op in body.ops for value in op.results}
    params = enumerate(body.params[:count])
    numbers = {value: number for number, value in params if value.type.rank}
    taken: set[int] = set()
    pairs = {}
    for index, (result, stated) in enumerate(
        zip(body.returns, function.result_shardings, strict=True)
    ):
        number = None if stated else _nearest_argument(result, makers, numbers, taken)
        if number is not None:
            pairs[index] = number
            taken.add(number)
    return pairs


def _nearest_argument(
    result: Value, makers: dict[Value, Op], numbers: dict[Value, int], taken: set[int]
) -> int | None:
    """Return the free argument with the fewest elementwise operations between it and a result."""
    seen = {result}
    level = [result]
    while level:
        following = []
        for value in level:
            number = numbers.get(value)
            if number is not None and number not in taken:
                return number
            op = makers.get(value)
            if op is None or not op.spec.elementwise:
                continue
            for operand in used_by(op):
                if operand not in seen and operand.type == result.type:
                    seen.add(operand)
                    following.append(operand)
        level = following
    return None
