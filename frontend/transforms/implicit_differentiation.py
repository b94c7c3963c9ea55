"""Implicit differentiation of solvers: `lax.custom_root` and `lax.custom_linear_solve`.

For A x = b, dx = A^-1 (db - dA x), and the gradient with respect to b is the solution of the
transposed equation. For f(x) = 0, the same follows with the derivative of f at x in place of A.

The captured values of a solver are passed to it as arguments without derivatives, so that it may
use the values with respect to which the equation is differentiated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from shardir.errors import DifferentiateError
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function, check_call_signature
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_structure import format_structure
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.frontend.transforms.custom_vjp import with_derived_vjp
from shardir.frontend.transforms.jvp_vjp import jvp, vjp
from shardir.frontend.transforms.linear_transpose import closure_convert, linear_transpose
from shardir.frontend.wrappers import wraps

EquationFunction = UserFunction
Solver = Callable[[EquationFunction, PyTree], PyTree]


def _check_functions(name: str, **given: object) -> None:
    for word, function in given.items():
        if not callable(function):
            raise ArgumentError(
                with_location(f"{word} of {name} is {function!r}, which is not a function")
            )


def _check_types_like(out: PyTree, like: PyTree, what: str, owner: str) -> None:
    """Raise `ArgumentError` unless `out` has the containers and shapes of `like`."""
    leaves, structure = tree.flatten(out)
    expected_leaves, expected = tree.flatten(like)
    if structure != expected:
        raise ArgumentError(
            with_location(
                f"{what} has the containers {format_structure(structure)}; return those of "
                f"{owner}, {format_structure(expected)}"
            )
        )
    for x, y in zip(leaves, expected_leaves, strict=True):
        found, shape = abstract_of(x, what).type, abstract_of(y, owner).type.shape
        if found.shape != shape:
            raise ArgumentError(
                with_location(f"{what} is {found}; return the shape of {owner}, {shape}")
            )


def _checked_function(function: EquationFunction, what: str) -> EquationFunction:
    """Return the function of an equation, whose results must have the shapes of its argument."""

    @wraps(function, with_attributes=False)
    def call(x: PyTree) -> PyTree:
        out = call_user_function(function, what, (x,))
        _check_types_like(out, x, f"the result of {what}", "its argument")
        return out

    return call


def _call_solver(
    what: str, has_aux: bool, solve: Solver, function: EquationFunction, x: object
) -> PyTree:
    """Call a solver, named `what` in errors, with a function and an array."""
    out = call_user_function(solve, what, (function, x))
    if has_aux and not (isinstance(out, (tuple, list)) and len(out) == 2):
        raise ArgumentError(
            with_location(
                f"{what} with has_aux must return (solution, aux); it returned {brief(out)}"
            )
        )
    for leaf in tree.leaves(out):
        abstract_of(leaf, f"the result of {what}")
    _check_types_like(out[0] if has_aux else out, x, f"the solution of {what}", "its argument")
    return out


def solve_root(
    f: EquationFunction,
    initial_guess: ArrayLike,
    solve: Solver,
    tangent_solve: Solver,
    has_aux: bool,
) -> PyTree:
    """Implement `lax.custom_root`."""
    _check_functions("custom_root", f=f, solve=solve, tangent_solve=tangent_solve)
    check_call_signature(f, "f of custom_root", (initial_guess,))
    f = _checked_function(f, "f of custom_root")
    solved = partial(_call_solver, "solve of custom_root", has_aux, solve, f)
    if current_trace() is None:
        return solved(initial_guess)
    equation, moving = closure_convert(f, initial_guess)
    method, closed = closure_convert(solved, initial_guess)

    def solution(moving: Sequence[object], closed: Sequence[object], guess: object) -> PyTree:
        return method(guess, *closed)

    def rule(primals: Sequence[PyTree], tangents: Sequence[PyTree]) -> PyTree:
        moving, _, _ = primals
        out = result(*primals)
        x, aux = out if has_aux else (out, None)
        _, f_dot = jvp(lambda *values: equation(x, *values), tuple(moving), tuple(tangents[0]))

        def derivative(v: object) -> PyTree:
            return jvp(lambda x: equation(x, *moving), (x,), (v,))[1]

        what = "tangent_solve of custom_root"
        x_dot = tree.map(lambda y: -y, _call_solver(what, False, tangent_solve, derivative, f_dot))
        return out, (x_dot, _zero_tangents(aux)) if has_aux else x_dot

    result = custom_jvp(solution)
    if not moving:
        return solution(moving, closed, initial_guess)
    result.defjvp(rule)
    return result(moving, closed, initial_guess)


def solve_linear(
    matvec: EquationFunction,
    b: object,
    solve: Solver,
    transpose_solve: Solver | None,
    symmetric: bool,
    has_aux: bool,
) -> PyTree:
    """Implement `lax.custom_linear_solve`."""
    _check_functions("custom_linear_solve", matvec=matvec, solve=solve)
    if transpose_solve is not None:
        _check_functions("custom_linear_solve", transpose_solve=transpose_solve)
    check_call_signature(matvec, "matvec of custom_linear_solve", (b,))
    matvec = _checked_function(matvec, "matvec of custom_linear_solve")
    solved = partial(_call_solver, "solve of custom_linear_solve", has_aux, solve, matvec)
    if current_trace() is None:
        return solved(b)
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    apply, moving = closure_convert(matvec, b)
    method, closed = closure_convert(solved, b)
    back: EquationFunction | None = None
    known: list[PyTree] = []
    if transpose_solve is not None:
        vecmat = matvec if symmetric else _transpose_function(matvec, b)
        what = "transpose_solve of custom_linear_solve"
        back, known = closure_convert(
            partial(_call_solver, what, has_aux, transpose_solve, vecmat), b
        )
    system = _LinearSystem(apply, method, back, symmetric, has_aux)
    return system.solution(moving, closed, known, b)


@dataclass(frozen=True)
class _LinearSystem:
    """A linear system `apply(x, *moving) = b`, with solvers of the system and its transpose.

    `method(b, *closed)` is the solution, `back(b, *known)` that of the transposed system.
    """

    apply: EquationFunction
    method: EquationFunction
    transpose_method: EquationFunction | None
    symmetric: bool
    has_aux: bool

    def solution(
        self, moving: Sequence[PyTree], closed: Sequence[PyTree], known: PyTree, b: PyTree
    ) -> PyTree:
        """Return the result of `method`: the solution, with auxiliary data if there is any."""

        def solve(moving: object, closed: Sequence[PyTree], known: object, b: object) -> PyTree:
            return self.method(b, *closed)

        def rule(primals: Sequence[PyTree], tangents: Sequence[PyTree]) -> PyTree:
            moving, closed, known, _ = primals
            out = self.solution(*primals)
            x, aux = out if self.has_aux else (out, None)
            right = tangents[3]
            if moving:
                _, a_dot_x = jvp(lambda *v: self.apply(x, *v), tuple(moving), tuple(tangents[0]))
                right = tree.map(lambda db, dax: db - dax, right, a_dot_x)
            x_dot = self.linear_solution(moving, closed, known, right)
            return out, (x_dot, _zero_tangents(aux)) if self.has_aux else x_dot

        result = custom_jvp(solve)
        result.defjvp(rule)
        return result(moving, closed, known, b)

    def linear_solution(
        self, moving: Sequence[PyTree], closed: Sequence[PyTree], known: PyTree, b: PyTree
    ) -> PyTree:
        """Return the solution without auxiliary data, as a transposable linear function of `b`."""

        def solve(
            moving: Sequence[PyTree], closed: Sequence[PyTree], known: PyTree, b: PyTree
        ) -> PyTree:
            out = self.solution(moving, closed, known, b)
            return out[0] if self.has_aux else out

        def ahead(
            moving: Sequence[PyTree], closed: Sequence[PyTree], known: PyTree, b: PyTree
        ) -> PyTree:
            x = solve(moving, closed, known, b)
            return x, (moving, closed, known, x)

        def backward(kept: PyTree, cotangent: PyTree) -> PyTree:
            moving, closed, known, x = kept
            if self.transpose_method is None:
                raise DifferentiateError(
                    with_location(
                        "a gradient through custom_linear_solve needs a solver of the transposed "
                        "equation; pass transpose_solve, or symmetric=True if that holds"
                    )
                )
            other = _LinearSystem(
                self._transposed_apply(x),
                self.transpose_method,
                self.method,
                self.symmetric,
                self.has_aux,
            )
            out = other.solution(moving, known, closed, cotangent)
            y = out[0] if self.has_aux else out
            by_moving = None
            if moving:
                _, pull = vjp(lambda *values: self.apply(x, *values), *moving)
                by_moving = type(moving)(tree.map(lambda g: -g, each) for each in pull(y))
            return by_moving, None, None, y

        return with_derived_vjp(solve, ahead, backward)(moving, closed, known, b)

    def _transposed_apply(self, like: object) -> EquationFunction:
        """Return `apply` of the transposed system."""
        if self.symmetric:
            return self.apply
        return lambda y, *moving: _transpose_function(lambda x: self.apply(x, *moving), like)(y)


def _transpose_function(function: EquationFunction, like: object) -> EquationFunction:
    def apply_transpose(y: object) -> PyTree:
        (result,) = linear_transpose(function, like)(y)
        return result

    return apply_transpose


def _zero_tangents(aux: object) -> PyTree:
    return tree.map(lambda _: None, aux)
