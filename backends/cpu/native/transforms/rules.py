"""What this package lowers, by the name of the operation."""

from collections.abc import Sequence

from shardir.backends.cpu.native.data import Context, Phase, Rule, View
from shardir.ir import Op


def _fft(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> Sequence[Phase] | None:
    from shardir.backends.cpu.native.transforms.batches import fft_rule

    return fft_rule(op, operands, results, context)


RULES: dict[str, Rule] = {"fft": _fft}
"""Its module is imported when it is first asked."""
