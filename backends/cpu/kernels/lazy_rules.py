"""Rules whose modules are imported on their first use: a program imports only what it needs."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, Rule

if TYPE_CHECKING:
    from shardir.ir.module import Op


_PACKAGE = "shardir.backends.cpu.kernels"


def lazy_rules(modules: Mapping[str, Sequence[str]]) -> dict[str, Rule]:
    """Return a rule for each operation in the `RULES` of the modules, named relative to
    `kernels`."""
    return {
        name: _import_on_call(f"{_PACKAGE}.{module}", name)
        for module, names in modules.items()
        for name in names
    }


def _import_on_call(module: str, name: str) -> Rule:
    def rule(
        op: "Op",
        operands: Sequence[BufferView],
        results: Sequence[BufferView],
        context: LoweringContext,
    ) -> Sequence[Phase] | None:
        found: Rule = import_module(module).RULES[name]
        return found(op, operands, results, context)

    return rule
