"""The lowering table: for each operation its lowering rule, or the reason why it cannot be emitted.

`lowers("tanh")` registers the function that writes an operation's statements, `refuses("svd", ...)`
the reason and the alternative for the error. Each operation is in one of the two.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shardir.backends.emission import NoEmissionRule
from shardir.backends.ipu.codegen.emitter import ProgramEmitter
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.op_rules.rule_table import find_rule, missing_rule
from shardir.ops.control_flow.loop_unification import is_pointwise

Lower = Callable[[ProgramEmitter, Op], None]


@dataclass(frozen=True, slots=True)
class LoweringRefusal:
    """The reason why an operation cannot be emitted, and an alternative."""

    reason: str
    fix: str


LOWERING_RULES: dict[str, Lower] = {}
REFUSED_OPERATIONS: dict[str, LoweringRefusal] = {}


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Return a decorator that registers the lowering rule of the named operations."""

    def register(rule: Lower) -> Lower:
        for name in names:
            _check(name)
            LOWERING_RULES[name] = rule
        return rule

    return register


def refuses(*names: str, reason: str, fix: str) -> None:
    """Register operations that cannot be emitted."""
    for name in names:
        _check(name)
        REFUSED_OPERATIONS[name] = LoweringRefusal(reason, fix)


def lower_operation(e: ProgramEmitter, op: Op) -> None:
    """Write the statements of an operation; raise `EmissionError` if it cannot be emitted."""
    if op.name in REFUSED_OPERATIONS:
        refusal = REFUSED_OPERATIONS[op.name]
        raise e.refusal_error(op, refusal.reason, refusal.fix)
    rule = find_rule(LOWERING_RULES, op.name, "ipu")
    if rule is None:
        raise no_rule_error(op)
    rule(e, op)


def no_rule_error(op: Op) -> NoEmissionRule:
    """Return the error for an operation that is neither lowered nor refused."""
    how = "@lowers({0!r}) of shardir.backends.ipu.lowering.lowering_table"
    if is_pointwise(op.spec):
        how = "@ipu_rule({0!r}) of shardir.extend"
    return missing_rule(NoEmissionRule, op, "ipu", how)


def _check(name: str) -> None:
    if name not in OPS:
        raise ValueError(f"no operation is called {name!r}")
    if name in LOWERING_RULES or name in REFUSED_OPERATIONS:
        raise ValueError(f"{name!r} is in the lowering table of the ipu twice")
