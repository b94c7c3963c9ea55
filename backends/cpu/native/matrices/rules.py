"""What this package lowers, by the name of the operation."""

from collections.abc import Sequence
from importlib import import_module

from shardir.backends.cpu.native.data import Context, Phase, Rule, View
from shardir.ir import Op

PACKAGE = "shardir.backends.cpu.native.matrices"
MODULES = {
    "cholesky": "definite",
    "eig": "spectra",
    "eigh": "spectra",
    "least_squares": "singular",
    "lu": "factoring",
    "pinv": "singular",
    "qr": "reflecting",
    "svd": "singular",
    "triangular_solve": "solving",
}
"""Where the rule `NAME_rule` of each is."""


def _later(name: str, module: str) -> Rule:
    """A rule whose module is imported when it is first asked."""

    def rule(
        op: Op, operands: Sequence[View], results: Sequence[View], context: Context
    ) -> Sequence[Phase] | None:
        found: Rule = getattr(import_module(f"{PACKAGE}.{module}"), f"{name}_rule")
        return found(op, operands, results, context)

    return rule


RULES: dict[str, Rule] = {name: _later(name, module) for name, module in MODULES.items()}
