"""Every operation that has a rule here: where, so that only what a program needs is imported."""

from collections.abc import Sequence
from importlib import import_module

from shardir.backends.cpu.native.data import Context, Phase, Rule, View
from shardir.ir import Op

MODULES: dict[str, tuple[str, ...]] = {
    "arranging": (
        "broadcast",
        "transpose",
        "reshape",
        "slice",
        "reverse",
        "concatenate",
        "roll",
        "pad",
        "bitcast",
    ),
    "lookup": ("dynamic_slice", "dynamic_update_slice", "gather"),
    "scattering": ("scatter",),
    "running": ("cumsum", "cumprod", "cummax", "cummin"),
    "extremes": ("argmax", "argmin"),
    "hashing": (
        "random_bits",
        "random_bits_at",
        "random_split",
        "random_split_at",
        "random_fold_in",
        "random_hash",
    ),
    "windows": ("reduce_window",),
    "choosing": ("select_and_scatter",),
    "sorting": ("sort", "top_k"),
}
"""The operations of each module's own `RULES`."""


def _rule(module: str, name: str) -> Rule:
    """The rule for an operation, whose module is imported when it is first asked."""

    def rule(
        op: Op, operands: Sequence[View], results: Sequence[View], context: Context
    ) -> Sequence[Phase] | None:
        home = import_module(f"shardir.backends.cpu.native.moves.{module}")
        found: Rule = home.RULES[name]
        return found(op, operands, results, context)

    return rule


RULES: dict[str, Rule] = {
    name: _rule(module, name) for module, names in MODULES.items() for name in names
}
"""Phases for operands and results that lie in any way."""
