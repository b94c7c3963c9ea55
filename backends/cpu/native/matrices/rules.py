"""What this package lowers, by the name of the operation."""

from collections.abc import Sequence

from shardir.backends.cpu.native.data import Context, Phase, Rule, View
from shardir.ir import Op


def _lu(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> Sequence[Phase] | None:
    from shardir.backends.cpu.native.matrices.factoring import lu_rule

    return lu_rule(op, operands, results, context)


def _triangular_solve(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> Sequence[Phase] | None:
    from shardir.backends.cpu.native.matrices.solving import triangular_solve_rule

    return triangular_solve_rule(op, operands, results, context)


def _cholesky(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> Sequence[Phase] | None:
    from shardir.backends.cpu.native.matrices.definite import cholesky_rule

    return cholesky_rule(op, operands, results, context)


RULES: dict[str, Rule] = {"cholesky": _cholesky, "lu": _lu, "triangular_solve": _triangular_solve}
"""Their modules are imported when they are first asked."""
