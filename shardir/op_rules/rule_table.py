"""Tables of the rules that one target has for operations, and the error for a missing rule.

A package adds rules to a target with entry points of the group `shardir.rules.TARGET`, such as
`shardir.rules.gpu`. Each names a module that registers rules when it is imported. A table imports
them when it lacks a rule.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from shardir.errors import NoRule, ShardirError
from shardir.ir.module import Op
from shardir.ir.operation import OPS, OpSpec
from shardir.plugins.registry import load_entry_points
from shardir.text.printer import Printer

Rule = TypeVar("Rule")
Error = TypeVar("Error", bound=ShardirError)


class RuleTable(Generic[Rule]):
    """The rules of one target, keyed by operation.

    `how` states how to add a rule, for errors; `{0!r}` in it stands for the name of the operation.
    """

    def __init__(self, target: str, how: str) -> None:
        self.target = target
        self.how = how
        self._rules: dict[OpSpec, Rule] = {}

    def rule(self, *operations: OpSpec | str) -> Callable[[Rule], Rule]:
        """Return a decorator that registers the rule of operations, or of their names."""

        def register(rule: Rule) -> Rule:
            for each in operations:
                spec = OPS[each] if isinstance(each, str) else each
                if spec in self._rules:
                    raise ValueError(f"{self.target} already has a rule for {spec.name}")
                self._rules[spec] = rule
            return rule

        return register

    def of(self, op: Op) -> Rule:
        """Return the rule for an operation; raise `NoRule` with its name and source line."""
        rule = find_rule(self._rules, op.spec, self.target)
        if rule is None:
            raise missing_rule(NoRule, op, self.target, self.how)
        return rule

    def __contains__(self, spec: OpSpec) -> bool:
        return spec in self._rules

    def __iter__(self) -> Iterator[OpSpec]:
        return iter(self._rules)


Key = TypeVar("Key")


def find_rule(rules: Mapping[Key, Rule], key: Key, target: str) -> Rule | None:
    """Return the rule of an operation in the table of a target, or `None`.

    Imports the rules that other packages have for the target if the table has none.
    """
    if key not in rules:
        load_entry_points(f"shardir.rules.{target}")
    return rules.get(key)


def missing_rule(
    kind: Callable[[str, str, str, str, str], Error], op: Op, target: str, how: str
) -> Error:
    """Return the error for an operation that a target cannot contain.

    `kind` makes it from the target, the name, the place and the line of the operation, and the
    remedy; `{0!r}` in `how` stands for the name of the operation.
    """
    names = ", ".join(f"%{value.name}" for value in op.results)
    where = (f" {names}" if names else "") + (f" ({op.loc})" if op.loc else "")
    bare = replace(op, results=tuple(replace(value, sharding=None) for value in op.results))
    values = {value: f"%{value.name}" for value in bare.tensors}
    line = str(Printer(()).op(bare, values))
    return kind(target, op.name, where, line, how.format(op.name))
