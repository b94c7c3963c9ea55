"""Rules of matrix decompositions and solvers."""

from shardir.frontend.interop.primitive_lowering import apply_lowered
from shardir.frontend.interop.primitive_rules.registry import (
    Equation,
    RuleResult,
    register_function,
    register_rule,
)
from shardir.frontend.lax import linalg
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.tracing.tracer import Tracer

register_function("triangular_solve", linalg.triangular_solve, left_side="left_side", lower="lower",
       transpose_a="transpose_a", conjugate_a="conjugate_a",
       unit_diagonal="unit_diagonal")  # fmt: skip
register_function("householder_product", linalg.householder_product)
register_function("lu", linalg.lu)
register_function("lu_pivots_to_permutation", linalg.lu_pivots_to_permutation,
       permutation_size="permutation_size")  # fmt: skip


@register_rule("cholesky")
def _apply_cholesky(equation: Equation) -> Tracer:
    return linalg.cholesky(*equation.tracers, symmetrize_input=False)


@register_rule("tridiagonal_solve")
def _apply_tridiagonal_solve(equation: Equation) -> RuleResult:
    if equation.params.get("perturb_singular"):
        return apply_lowered(equation)
    return linalg.tridiagonal_solve(*equation.tracers)


@register_rule("qr")
def _apply_qr(equation: Equation) -> RuleResult:
    params = equation.params
    if params["pivoting"]:
        return apply_lowered(equation)
    return linalg.qr(*equation.tracers, full_matrices=params["full_matrices"])


@register_rule("svd")
def _apply_svd(equation: Equation) -> PyTree:
    params = equation.params
    result = linalg.svd(
        *equation.tracers,
        full_matrices=params["full_matrices"],
        compute_uv=params["compute_uv"],
        subset_by_index=params["subset_by_index"],
    )
    if not params["compute_uv"]:
        return result
    u, s, v = result
    return s, u, v


@register_rule("eigh")
def _apply_eigh(equation: Equation) -> RuleResult:
    """Emit eigh on one triangle; JAX has symmetrized the matrix before this primitive."""
    params = equation.params
    return linalg.eigh(
        *equation.tracers,
        lower=params["lower"],
        symmetrize_input=False,
        subset_by_index=params["subset_by_index"],
    )


@register_rule("eig")
def _apply_eig(equation: Equation) -> RuleResult:
    params = equation.params
    return linalg.eig(
        *equation.tracers,
        compute_left_eigenvectors=params["compute_left_eigenvectors"],
        compute_right_eigenvectors=params["compute_right_eigenvectors"],
    )
