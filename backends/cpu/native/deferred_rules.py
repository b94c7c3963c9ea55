"""Rules whose modules are imported on their first use: a program imports only what it needs."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from shardir.backends.cpu.native.data import Context, Phase, Rule, View

if TYPE_CHECKING:
    from shardir.ir import Op


def deferred_rules(package: str, modules: Mapping[str, Sequence[str]]) -> dict[str, Rule]:
    """Return a rule for each operation in the `RULES` of the modules of a package."""
    return {
        name: _deferred(f"{package}.{module}", name)
        for module, names in modules.items()
        for name in names
    }


def _deferred(module: str, name: str) -> Rule:
    def rule(
        op: "Op", operands: Sequence[View], results: Sequence[View], context: Context
    ) -> Sequence[Phase] | None:
        found: Rule = import_module(module).RULES[name]
        return found(op, operands, results, context)

    return rule
