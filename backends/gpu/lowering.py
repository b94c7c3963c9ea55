"""Table of lowering rules: the torch code of each operation.

A rule takes the writer, the operation and the names of its operands, and returns the expression of
the results, or `None` if it writes the lines itself. `REFUSED` lists operations that no program for
GPUs can contain, with the reason and an alternative.
"""

from collections.abc import Callable

from shardir import ops
from shardir.backends.emission import EmissionError, NoEmissionRule
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.op_rules.rule_table import find_rule, missing_rule

Rule = Callable[..., str | None]

RULES: dict[str, Rule] = {}
LAZY_RULES: set[str] = set()
"""Operations whose rules request the names of only those operands that they use."""


def lowers(*names: str, lazy: bool = False) -> Callable[[Rule], Rule]:
    """Return a decorator that registers the rule of the named operations.

    The rule has the signature (writer, operation, name of each operand...) -> expression; with
    `lazy` it is (writer, operation) -> expression.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            if name not in OPS:
                raise ValueError(f"no operation is called {name!r}")
            if name in RULES:
                raise ValueError(f"{name!r} has two rules")
            RULES[name] = rule
            if lazy:
                LAZY_RULES.add(name)
        return rule

    return register


def gpu_rule(name: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers the rule of an operation from outside of shardir.

    The rule takes the writer, the operation and the names of its operands, and returns a torch
    expression.
    """
    return lowers(name)


HOST_CALLBACK_REASON = (
    "it calls a function of the Python program that was traced, which the emitted one lacks"
)
REFUSED_OPERATIONS: dict[str, tuple[str, str]] = {
    "callback": (HOST_CALLBACK_REASON, "return the value and call the function on the result"),
    "pure-callback": (HOST_CALLBACK_REASON, "write the function with shardir's operations"),
    "schur": (
        "torch has no Schur decomposition",
        "compute it on the host, and pass the result as an argument",
    ),
    "opaque": (
        "it is an operation of another language, of which only the text is known",
        "write it with shardir's operations",
    ),
    **dict.fromkeys(
        ("manual_computation", "custom-partitioning"),
        (
            "its body is not yet the program of one device",
            "partition the program first: the default pipeline does this",
        ),
    ),
    **dict.fromkeys(
        ("pipeline", "staged-pipeline"),
        ("it runs in stages, and an emitted program has none", "run the pass inline-pipelines"),
    ),
}
"""Operations that cannot be emitted: the reason, and an alternative."""


def lower_operation(writer: FunctionWriter, op: Op) -> None:
    """Write one operation; raise `EmissionError` if a program cannot contain it."""
    if op.name in REFUSED_OPERATIONS:
        raise EmissionError.of(op, *REFUSED_OPERATIONS[op.name])
    rule = find_rule(RULES, op.name, "gpu")
    if rule is None:
        how = "@gpu_rule({0!r}) of shardir.extend"
        raise missing_rule(NoEmissionRule, op, "gpu", how)
    free = writer.is_uniform_number(op) or op.spec is ops.iota
    names = () if op.name in LAZY_RULES else tuple(writer.name(value) for value in op.operands)
    expression = rule(writer, op, *names)
    if expression is not None:
        writer.bind(op, expression, free)
