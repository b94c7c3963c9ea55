"""Comparison of derivatives with central finite differences along a random direction: `test_util`.

A random direction has a component along every element: an error in any derivative changes the
result with probability 1, and the number of evaluations does not depend on the number of elements.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardir.errors import ShardirError
from shardir.frontend.argument_checks import check_integer, check_real
from shardir.frontend.arrays.float0 import FLOAT0
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import api as snp
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.transforms.jvp_vjp import jvp, linearize, vjp

__all__ = ["DerivativeMismatchError", "check_grads", "check_jvp", "check_vjp"]

DEFAULT_STEP = 1e-4
"""The step of finite differences without `eps`."""

MODES = {"fwd": "JVP", "rev": "VJP", "lin": "linearization"}
"""The modes, and the derivatives that they compute."""

MIN_TOLERANCE, TOLERANCE_EXPONENT = 1e-5, 0.39
"""The default tolerance is this power of the distance of 1 to the next number (2e-3 for 32 bits),
and at least the minimum."""

Tolerance = float | Mapping[Any, float] | None
"""A tolerance for all element types, or for some of them."""

Numbers = np.ndarray[Any, np.dtype[Any]]


class DerivativeMismatchError(ShardirError, AssertionError):
    """A derivative differs from finite differences."""


@traceback_boundary
def check_grads(
    f: UserFunction, args: Sequence[PyTree], order: int,
    modes: str | Sequence[str] = ("fwd", "rev"), atol: Tolerance = None,
    rtol: Tolerance = None, eps: float | None = None,
) -> None:  # fmt: skip
    """Compare the derivatives of `f` at `args`, up to `order`, with finite differences.

    `modes` are "fwd" (`jvp`), "rev" (`vjp`) and "lin" (`linearize`). The tolerances `atol` and
    `rtol`, each a number or a number for each dtype, are multiplied by the number of elements of a
    result. `eps` is the step of the differences (1e-4). Raise `DerivativeMismatchError` for a
    derivative that differs, and `ArgumentError` for unknown modes.
    """
    check_function("check_grads", f)
    chosen = (modes,) if isinstance(modes, str) else _as_tuple("modes of check_grads", modes)
    if unknown := [mode for mode in chosen if mode not in MODES]:
        raise ArgumentError(
            with_location(
                f"modes of check_grads has {brief(unknown[0])}; they are {', '.join(MODES)}"
            )
        )
    comparison = _Comparison(atol, rtol, _as_step(eps))
    count = check_integer("order of check_grads", order, 1)
    _check_order(f, _as_tuple("args of check_grads", args), count, chosen, comparison, "")


@traceback_boundary
def check_jvp(
    f: UserFunction, f_jvp: UserFunction, args: Sequence[PyTree], atol: Tolerance = None,
    rtol: Tolerance = None, eps: float = DEFAULT_STEP, err_msg: str = "",
) -> None:  # fmt: skip
    """Compare `f_jvp(args, tangents)`, such as `partial(jvp, f)`, with finite differences of `f`.

    See `check_grads`. The error begins with `err_msg`.
    """
    comparison = _Comparison(atol, rtol, _as_step(eps))
    comparison.check_jvp(f, f_jvp, _as_tuple("args of check_jvp", args), err_msg or "the JVP")


@traceback_boundary
def check_vjp(
    f: UserFunction, f_vjp: UserFunction, args: Sequence[PyTree], atol: Tolerance = None,
    rtol: Tolerance = None, eps: float = DEFAULT_STEP, err_msg: str = "",
) -> None:  # fmt: skip
    """Compare `f_vjp(*args)`, such as `partial(vjp, f)`, with finite differences of `f`.

    See `check_grads`. The error begins with `err_msg`.
    """
    comparison = _Comparison(atol, rtol, _as_step(eps))
    comparison.check_vjp(f, f_vjp, _as_tuple("args of check_vjp", args), err_msg or "the VJP")


def _as_tuple(name: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise ArgumentError(with_location(f"{name} is a tuple or a list, got {brief(value)}"))
    return tuple(value)


def _as_step(eps: float | None) -> float:
    return DEFAULT_STEP if eps is None else check_real("eps", eps)


def _check_order(
    f: UserFunction, args: tuple[PyTree, ...], order: int, modes: Sequence[str],
    comparison: "_Comparison", of: str,
) -> None:  # fmt: skip
    """Check the derivatives of `f`, and of them those of lower order; `of` names `f` in errors."""

    def evaluate_linearization(primals: PyTree, tangents: PyTree) -> PyTree:
        results, pushforward = linearize(f, *primals)
        return results, pushforward(*tangents)

    def pulled_back(*args: PyTree) -> PyTree:
        results, pullback = vjp(f, *args)
        return _without_float0(pullback(_map_inexact(lambda x: x, results)))

    for mode in modes:
        what = f"the {MODES[mode]}{of}"
        if mode == "rev":
            comparison.check_vjp(f, lambda *args: vjp(f, *args), args, what)
            if order > 1:
                _check_order(pulled_back, args, order - 1, modes, comparison, f" of {what}")
            continue
        push: UserFunction = evaluate_linearization if mode == "lin" else lambda x, t: jvp(f, x, t)
        comparison.check_jvp(f, push, args, what)
        if order > 1:

            def push_forward(
                primals: PyTree, tangents: PyTree, push: UserFunction = push
            ) -> PyTree:
                return _without_float0(push(primals, _map_inexact(lambda x: x, tangents)))

            _check_order(push_forward, (args, args), order - 1, modes, comparison, f" of {what}")


@dataclass(frozen=True)
class _Comparison:
    """The tolerances, and the step of finite differences."""

    atol: Tolerance
    rtol: Tolerance
    step: float

    def check_jvp(
        self, f: UserFunction, f_jvp: UserFunction, args: tuple[PyTree, ...], what: str
    ) -> None:
        rng = np.random.default_rng(0)
        args = tree.map(_as_numbers, args)
        direction = _map_inexact(lambda x: _draw(rng, x), args)
        results, tangents = f_jvp(args, direction)
        self._check_close(results, f(*args), f"the results of {what}", "those of the function")
        expected = self._difference(f, args, direction)
        self._check_close(tangents, expected, f"the tangents of {what}", "finite differences")

    def check_vjp(
        self, f: UserFunction, f_vjp: UserFunction, args: tuple[PyTree, ...], what: str
    ) -> None:
        rng = np.random.default_rng(0)
        args = tree.map(_as_numbers, args)
        results, pullback = f_vjp(*args)
        self._check_close(results, f(*args), f"the results of {what}", "those of the function")
        direction = _map_inexact(lambda x: _draw(rng, x), args)
        cotangents = _map_inexact(lambda x: _draw(rng, x), results)
        gradients = pullback(cotangents)
        found = _pair(direction, gradients)
        expected = _pair(self._difference(f, args, direction), cotangents)
        name = f"the gradient of {what} along a direction"
        self._check_close(found, expected, name, "finite differences")

    def _difference(
        self, f: UserFunction, args: tuple[PyTree, ...], direction: tuple[PyTree, ...]
    ) -> PyTree:
        """Return the central differences of the results, in their element types."""

        def move(step: float) -> PyTree:
            moved = tree.map(lambda x, t: _move(x, t, step), args, direction)
            return tree.map(_as_numbers, f(*moved))

        def divide(high: Numbers, low: Numbers) -> Numbers:
            if not _is_inexact(high):
                return np.zeros(high.shape, FLOAT0)
            change = np.where(high == low, 0, _widen(high) - _widen(low))
            return np.asarray(change / (2 * self.step)).astype(high.dtype)

        return tree.map(divide, move(self.step), move(-self.step))

    def _check_close(self, found: PyTree, expected: PyTree, what: str, other: str) -> None:
        """Raise `DerivativeMismatchError` for the first result that differs."""
        leaves, structure = tree.flatten(found)
        others, expected_structure = tree.flatten(expected)
        if structure != expected_structure:
            raise DerivativeMismatchError(
                with_location(f"{what} are in {structure}, and {other} in {expected_structure}")
            )
        for i, (x, y) in enumerate(zip(leaves, others, strict=True)):
            a, b = _as_numbers(x), _as_numbers(y)
            if a.dtype == FLOAT0 or b.dtype == FLOAT0:
                continue
            if a.shape != b.shape:
                raise DerivativeMismatchError(
                    with_location(f"result {i} of {what} has the shape {a.shape}, not {b.shape}")
                )
            low, relative = (
                max(_tolerance(given, each.dtype) for each in (a, b)) * a.size
                for given in (self.atol, self.rtol)
            )
            wide, expected_wide = _widen(a), _widen(b)
            is_close = np.isclose(wide, expected_wide, relative, low, equal_nan=True)
            if not is_close.all():
                at = tuple(int(n) for n in np.argwhere(~is_close)[0])
                raise DerivativeMismatchError(
                    with_location(
                        f"{what} differ from {other}: result {i} has {wide[at]:.6g} at "
                        f"{list(at)}, not {expected_wide[at]:.6g}"
                    )
                )


def _as_numbers(x: object) -> Numbers:
    return x if getattr(x, "dtype", None) == FLOAT0 else np.asarray(snp.asarray(x))  # type: ignore[return-value, arg-type]


def _is_inexact(x: Any) -> bool:
    return x.dtype != FLOAT0 and bool(snp.issubdtype(x.dtype, snp.inexact))


def _widen(x: Numbers) -> Numbers:
    """Return numbers in a type in which differences are not rounded."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _map_inexact(function: Callable[[Any], Any], xs: PyTree) -> PyTree:
    """Return the results of a function of inexact arrays, and `float0` for other arrays."""
    return tree.map(lambda x: function(x) if _is_inexact(x) else np.zeros(x.shape, FLOAT0), xs)


def _without_float0(xs: PyTree) -> PyTree:
    """Return a pytree with `None` in place of arrays of the type `float0`, which a traced function
    cannot return."""
    return tree.map(lambda x: None if getattr(x, "dtype", None) == FLOAT0 else x, xs)


def _draw(rng: np.random.Generator, x: Any) -> Numbers:
    numbers = rng.standard_normal(x.shape)
    if snp.issubdtype(x.dtype, snp.complexfloating):
        numbers = numbers + 1j * rng.standard_normal(x.shape)
    return np.asarray(numbers).astype(x.dtype)


def _move(x: Numbers, direction: Numbers, step: float) -> Numbers:
    if direction.dtype == FLOAT0:
        return x
    return np.asarray(_widen(x) + step * _widen(direction)).astype(x.dtype)


def _pair(xs: PyTree, ys: PyTree) -> Numbers:
    """Return the sum of the products of all elements, as a number of the type of the first ones."""
    pairs = zip(tree.leaves(xs), map(_as_numbers, tree.leaves(ys)), strict=True)
    inexact = [(x, y) for x, y in pairs if FLOAT0 not in (x.dtype, y.dtype)]
    total = sum(float(np.real(_widen(x) * _widen(y)).sum()) for x, y in inexact)
    dtype = inexact[0][0].real.dtype if inexact else np.float64
    return np.asarray(total, dtype)


def _tolerance(given: Tolerance, dtype: np.dtype[Any]) -> float:
    if given is None or (isinstance(given, Mapping) and dtype not in map(np.dtype, given)):
        if dtype.kind in "biu" or not snp.issubdtype(dtype, snp.inexact):
            return 0.0
        return float(max(MIN_TOLERANCE, float(snp.finfo(dtype).eps) ** TOLERANCE_EXPONENT))
    if isinstance(given, Mapping):
        return next(float(value) for key, value in given.items() if np.dtype(key) == dtype)
    return check_real("a tolerance", given)
