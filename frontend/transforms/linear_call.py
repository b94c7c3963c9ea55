"""`linear_call`: linear functions with a transpose of their own."""

from dataclasses import dataclass

from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.parameters import function_name
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.frontend.transforms.custom_rules import SymbolicZero
from shardir.frontend.transforms.custom_vjp import with_derived_vjp
from shardir.frontend.transforms.jvp_vjp import jvp, vjp


@traceback_boundary
def linear_call(
    fun: UserFunction, fun_transpose: UserFunction, residual_args: PyTree, linear_args: PyTree
) -> PyTree:
    """Return `fun(residual_args, linear_args)`, which is linear in `linear_args`.

    `fun_transpose(residual_args, cotangents)` computes the transpose with respect to `linear_args`:
    it takes cotangents in the structure of the result of `fun`, and returns those of `linear_args`.
    Reverse mode and `linear_transpose` call it in place of the transpose that follows from the
    operations of `fun`; the transpose of `fun_transpose` is `fun`. The linearity is not checked.
    Derivatives with respect to `residual_args` are those of `fun`. Raise `DifferentiateError` if
    `fun_transpose` returns other shapes or types than those of `linear_args`.
    """
    check_function("linear_call", fun)
    check_function("linear_call", fun_transpose)
    return _LinearFunction(fun, fun_transpose).apply(residual_args, linear_args)


@dataclass(frozen=True)
class _LinearFunction:
    """A function `fun(residuals, x)` that is linear in `x`, and its transpose."""

    fun: UserFunction
    transpose: UserFunction

    def apply(self, residuals: PyTree, x: PyTree) -> PyTree:
        """Return the result, which is differentiable with respect to both arguments."""

        def rule(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> PyTree:
            residuals, x = primals
            parts = []
            if not _is_zero(tangents[1]):
                moving = tree.map(_as_array, x, tangents[1])
                parts.append(self._apply_transposably(residuals, moving))
            if not _is_zero(tangents[0]):
                moving = tree.map(_as_array, residuals, tangents[0])
                parts.append(jvp(lambda r: self._call(r, x), (residuals,), (moving,))[1])
            total = parts[0] if len(parts) == 1 else tree.map(lambda a, b: a + b, *parts)
            return self.apply(residuals, x), total

        result = custom_jvp(self._named_call())
        result.defjvp(rule, symbolic_zeros=True)
        return result(residuals, x)

    def _apply_transposably(self, residuals: PyTree, x: PyTree) -> PyTree:
        """Return the result, whose reverse mode is the transpose."""

        def ahead(residuals: PyTree, x: PyTree) -> PyTree:
            is_moving = any(leaf.perturbed for leaf in tree.leaves(residuals))
            values = tree.map(lambda leaf: leaf.value, (residuals, x))
            return self.apply(*values), (values, () if is_moving else None)

        def backward(kept: PyTree, cotangent: PyTree) -> PyTree:
            (residuals, x), is_moving = kept
            by_residuals = None
            if is_moving is not None:
                (by_residuals,) = vjp(lambda r: self._call(r, x), residuals)[1](cotangent)
            other = _LinearFunction(self.transpose, self.fun)
            return by_residuals, other.apply(residuals, cotangent)

        function = with_derived_vjp(self._named_call(), ahead, backward, symbolic_zeros=True)
        return function(residuals, x)

    def _call(self, residuals: PyTree, x: PyTree) -> PyTree:
        return call_user_function(self.fun, function_name(self.fun), (residuals, x))

    def _named_call(self) -> UserFunction:
        """Return `_call` as a function with the name of the user's function."""

        def call(residuals: PyTree, x: PyTree) -> PyTree:
            return self._call(residuals, x)

        call.__name__ = function_name(self.fun)
        return call


def _is_zero(tangents: PyTree) -> bool:
    return all(isinstance(leaf, SymbolicZero) for leaf in tree.leaves(tangents))


def _as_array(like: PyTree, tangent: PyTree) -> PyTree:
    return like * 0 if isinstance(tangent, SymbolicZero) else tangent
