"""Solutions that are differentiated by what they solve, not by how: `lax.custom_root` and
`lax.custom_linear_solve`.

Where A x = b, dx = A^-1 (db - dA x), and the gradient by b is what solves the transposed equation.
Where f(x) = 0, the same follows with the derivative of f at x for A.

What a solver closes over is handed to it as arguments that do not move, so that it may use the
very values that the equation is differentiated by.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardir.errors import DifferentiateError
from shardir.frontend import tree
from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.custom_vjp import custom_vjp
from shardir.frontend.directions import jvp, vjp
from shardir.frontend.errors import ArgumentError
from shardir.frontend.linearity import closure_convert, linear_transpose
from shardir.frontend.locations import point
from shardir.frontend.operands import abstract_of
from shardir.frontend.parameters import called, check_call
from shardir.frontend.quoting import brief
from shardir.frontend.trace import current

Function = Callable[..., Any]
Solver = Callable[[Function, Any], Any]


def _check(name: str, **given: object) -> None:
    for word, function in given.items():
        if not callable(function):
            raise ArgumentError(point(f"{word} of {name} is {function!r}, which is no function"))


def _solved(what: str, has_aux: bool, solve: Solver, function: Function, x: Any) -> Any:
    """What a solver, called `what` in errors, makes of a function and an array."""
    out = called(solve, what, (function, x))
    if has_aux and not (isinstance(out, (tuple, list)) and len(out) == 2):
        raise ArgumentError(
            point(f"{what} with has_aux must return (solution, aux); it returned {brief(out)}")
        )
    for leaf in tree.leaves(out):
        abstract_of(leaf, f"the result of {what}")
    return out


def root(
    f: Function, initial_guess: Any, solve: Solver, tangent_solve: Solver, has_aux: bool
) -> Any:
    """See `lax.custom_root`."""
    _check("custom_root", f=f, solve=solve, tangent_solve=tangent_solve)
    check_call(f, "f of custom_root", (initial_guess,))
    solved = partial(_solved, "solve of custom_root", has_aux, solve, f)
    if current() is None:
        return solved(initial_guess)
    equation, moving = closure_convert(f, initial_guess)
    method, closed = closure_convert(solved, initial_guess)

    def solution(moving: Sequence[Any], closed: Sequence[Any], guess: Any) -> Any:
        return method(guess, *closed)

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        moving, _, _ = primals
        out = found(*primals)
        x, aux = out if has_aux else (out, None)
        _, slope = jvp(lambda *values: equation(x, *values), tuple(moving), tuple(tangents[0]))

        def derivative(v: Any) -> Any:
            return jvp(lambda x: equation(x, *moving), (x,), (v,))[1]

        what = "tangent_solve of custom_root"
        moved = tree.map(lambda y: -y, _solved(what, False, tangent_solve, derivative, slope))
        return out, (moved, _unmoved(aux)) if has_aux else moved

    found = custom_jvp(solution)
    if not moving:
        return solution(moving, closed, initial_guess)
    found.defjvp(rule)
    return found(moving, closed, initial_guess)


def linear(
    matvec: Function,
    b: Any,
    solve: Solver,
    transpose_solve: Solver | None,
    symmetric: bool,
    has_aux: bool,
) -> Any:
    """See `lax.custom_linear_solve`."""
    _check("custom_linear_solve", matvec=matvec, solve=solve)
    if transpose_solve is not None:
        _check("custom_linear_solve", transpose_solve=transpose_solve)
    check_call(matvec, "matvec of custom_linear_solve", (b,))
    solved = partial(_solved, "solve of custom_linear_solve", has_aux, solve, matvec)
    if current() is None:
        return solved(b)
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    apply, moving = closure_convert(matvec, b)
    method, closed = closure_convert(solved, b)
    back: Function | None = None
    known: list[Any] = []
    if transpose_solve is not None:
        vecmat = matvec if symmetric else _transposed(matvec, b)
        what = "transpose_solve of custom_linear_solve"
        back, known = closure_convert(partial(_solved, what, has_aux, transpose_solve, vecmat), b)
    system = _System(apply, method, back, symmetric, has_aux)
    return system.solution(moving, closed, known, b)


@dataclass(frozen=True)
class _System:
    """Linear equations: `apply(x, *moving) = b`, and who solves them and the transposed ones.

    `method(b, *closed)` is the solution, `back(b, *known)` that with the transpose.
    """

    apply: Function
    method: Function
    back: Function | None
    symmetric: bool
    has_aux: bool

    def solution(self, moving: Any, closed: Any, known: Any, b: Any) -> Any:
        """What `method` gives, beside the solution something else where there is any."""

        def solve(moving: Any, closed: Any, known: Any, b: Any) -> Any:
            return self.method(b, *closed)

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
            moving, closed, known, _ = primals
            out = self.solution(*primals)
            x, aux = out if self.has_aux else (out, None)
            right = tangents[3]
            if moving:
                _, slope = jvp(lambda *v: self.apply(x, *v), tuple(moving), tuple(tangents[0]))
                right = tree.map(lambda db, dax: db - dax, right, slope)
            moved = self.linear(moving, closed, known, right)
            return out, (moved, _unmoved(aux)) if self.has_aux else moved

        found = custom_jvp(solve)
        found.defjvp(rule)
        return found(moving, closed, known, b)

    def linear(self, moving: Any, closed: Any, known: Any, b: Any) -> Any:
        """The solution alone, as a function that is linear in `b` and can be transposed."""

        def solve(moving: Any, closed: Any, known: Any, b: Any) -> Any:
            out = self.solution(moving, closed, known, b)
            return out[0] if self.has_aux else out

        def ahead(moving: Any, closed: Any, known: Any, b: Any) -> Any:
            x = solve(moving, closed, known, b)
            return x, (moving, closed, known, x)

        def backward(kept: Any, cotangent: Any) -> Any:
            moving, closed, known, x = kept
            if self.back is None:
                raise DifferentiateError(
                    point(
                        "a gradient through custom_linear_solve needs the transposed equation "
                        "solved; give it transpose_solve, or symmetric=True if that holds"
                    )
                )
            other = _System(self._turned(x), self.back, self.method, self.symmetric, self.has_aux)
            out = other.solution(moving, known, closed, cotangent)
            y = out[0] if self.has_aux else out
            by_moving = None
            if moving:
                _, pull = vjp(lambda *values: self.apply(x, *values), *moving)
                by_moving = type(moving)(tree.map(lambda g: -g, each) for each in pull(y))
            return by_moving, None, None, y

        found = custom_vjp(solve)
        found.defvjp(ahead, backward)
        return found(moving, closed, known, b)

    def _turned(self, like: Any) -> Function:
        """`apply` with the transpose."""
        if self.symmetric:
            return self.apply
        return lambda y, *moving: _transposed(lambda x: self.apply(x, *moving), like)(y)


def _transposed(function: Function, like: Any) -> Function:
    def turned(y: Any) -> Any:
        (made,) = linear_transpose(function, like)(y)
        return made

    return turned


def _unmoved(aux: Any) -> Any:
    return tree.map(lambda _: None, aux)
