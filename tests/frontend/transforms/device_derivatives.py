"""Derivatives of functions that every device runs: those of a library, and finite differences.

Inside of `shard_map`, a derivative is one of the function of `w`. With `check_vma` there is one `w`
that all devices share, and a shared result counts once. Without it each device has its own, and
what counts is the sum of the results of all devices (JAX's meaning of `check_vma=False`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.frontend.transforms.per_device_functions import AXIS, COUNT, Case, Local, Stacked

W = np.array([0.7, -0.4])
STEP = np.array([0.3, 1.1])
X = np.array([0.5, -1.2, 0.9, 0.4, -0.6, 1.3, 0.2, 0.8])
V = np.array([1.0, -0.5, 0.25, 2.0, -1.0, 0.5, 1.5, 1.0])
"""Where derivatives are taken, and along which directions; `X` and `V` are sharded."""

FORWARD = ("jvp", "linearize", "jacfwd", "vmap of jvp", "hvp", "hessian", "grad of jvp")
REVERSE = ("vjp", "jacrev", "grad", "linear_transpose", "vmap of vjp", "grad of grad")


def modes(case: Case) -> list[str]:
    """Return the derivatives that a case supports inside of `shard_map`."""
    return [*(FORWARD if case.forward else ()), *REVERSE]


def inner_derivatives(case: Case, k: Local, w: Any, x: Any) -> dict[str, Any]:
    """Return all derivatives with respect to `w`, computed inside by the library of `k`."""
    top, np_ = k.top, k.np
    f = partial(_body, case, k, x=x)
    step, weights = np_.asarray(STEP, "float32"), _weights(case, k, np_.asarray)

    def loss(w: Any) -> Any:
        y = (f(w) ** 2).sum()
        return y if case.shared else k.lax.psum(y, AXIS)

    def along(w: Any) -> Any:
        return top.jvp(loss, (w,), (step,))[1]

    made: dict[str, Callable[[], Any]] = {
        "jvp": lambda: top.jvp(f, (w,), (step,))[1],
        "linearize": lambda: top.linearize(f, w)[1](step),
        "jacfwd": lambda: top.jacfwd(f)(w),
        "vmap of jvp": lambda: top.vmap(lambda t: top.jvp(f, (w,), (t,))[1])(
            np_.stack([step, 2 * step])
        ),
        "hvp": lambda: top.jvp(top.grad(loss), (w,), (step,))[1],
        "hessian": lambda: top.hessian(loss)(w),
        "grad of jvp": lambda: top.grad(along)(w),
        "vjp": lambda: top.vjp(f, w)[1](weights)[0],
        "jacrev": lambda: top.jacrev(f)(w),
        "grad": lambda: top.grad(loss)(w),
        "linear_transpose": lambda: _transposed(case, top, f, w, weights),
        "vmap of vjp": lambda: top.vmap(lambda c: top.vjp(f, w)[1](c)[0])(
            np_.stack([weights, 2 * weights])
        ),
        "grad of grad": lambda: top.grad(lambda w: (top.grad(loss)(w) * step).sum())(w),
    }
    return {mode: made[mode]() for mode in modes(case)}


def _transposed(case: Case, top: Any, f: Any, w: Any, weights: Any) -> Any:
    if not case.forward:  # only the backward pass is linear, and can be transposed
        return top.vjp(f, w)[1](weights)[0]
    return top.linear_transpose(top.linearize(f, w)[1], w)(weights)[0]


def _body(case: Case, k: Local, w: Any, x: Any) -> Any:
    return case.body(k, w, x)


def _weights(case: Case, k: Local, asarray: Callable[..., Any]) -> Any:
    """Return cotangents of the results; cotangents of varying results vary."""
    size = case.body(Stacked(k.checked), np.tile(W, (COUNT, 1)), X.reshape(COUNT, -1)).shape[1]
    same = asarray(np.arange(1.0, size + 1), "float32")
    return same if case.shared else same * (1 + k.index())


def measure_derivatives(case: Case, checked: bool) -> dict[str, Any]:
    """Return the derivatives by finite differences, stacked over the devices."""
    k = Stacked(checked)
    xs, ws = X.reshape(COUNT, -1), np.tile(W, (COUNT, 1))
    same, weights = checked, _weights(case, k, np.asarray)
    weights = np.broadcast_to(weights, case.body(k, ws, xs).shape)
    counted = weights if not (checked and case.shared) else weights[:1]

    def f(ws: Any) -> Any:
        return case.body(k, ws, xs)

    def first(y: Any) -> Any:
        """Return the results that the loss depends on."""
        return y[:1] if checked and case.shared else y

    def loss(ws: Any) -> float:
        """The sum of the losses that count: one, or those of all devices."""
        each = (f(ws) ** 2).sum(1)
        if checked:
            return float(each[0] if case.shared else each.sum())
        return float(each.sum() if case.shared else COUNT * each.sum())

    def gradient(of: Callable[[Any], Any], ws: Any) -> Any:
        """The derivative by what each device has, or by what they share."""
        made = np.stack(
            [_difference(of, ws, _unit(ws.shape, i)) for i in np.ndindex(ws.shape)], -1
        ).reshape((*np.shape(of(ws)), *ws.shape))
        total = made.sum(-2, keepdims=True)
        return np.broadcast_to(total, made.shape) if same else made

    def moved(of: Callable[[Any], Any], ws: Any, step: Any) -> Any:
        return _difference(of, ws, np.broadcast_to(step, ws.shape))

    units = np.eye(len(W))
    columns = np.stack([moved(f, ws, unit) for unit in units], -1)
    slope = moved(f, ws, STEP)
    slopes = gradient(loss, ws)
    second = np.stack([moved(partial(gradient, loss), ws, unit) for unit in units], -1)
    product = second @ STEP
    pulled = gradient(lambda ws: (counted * first(f(ws))).sum(), ws)
    return {
        "jvp": slope,
        "linearize": slope,
        "jacfwd": columns,
        "vmap of jvp": np.stack([slope, 2 * slope], 1),
        "hvp": product,
        "hessian": second,
        "grad of jvp": product,
        "vjp": pulled,
        "jacrev": columns if checked else _rows(f, ws),
        "grad": slopes,
        "linear_transpose": pulled,
        "vmap of vjp": np.stack([pulled, 2 * pulled], 1),
        "grad of grad": _twice(partial(gradient, loss), ws, same),
    }


def _twice(gradient: Callable[[Any], Any], ws: Any, same: bool) -> Any:
    """Return the gradient of the gradient along a direction.

    The gradient is that of one loss, or of the sum over the devices.
    """

    def along(ws: Any) -> float:
        made = (gradient(ws) * STEP).sum(1)
        return float(made[0] if same else made.sum())

    units = [_unit(ws.shape, i) for i in np.ndindex(ws.shape)]
    made = np.array([_difference(along, ws, unit) for unit in units]).reshape(ws.shape)
    return np.broadcast_to(made.sum(0), made.shape) if same else made


def _rows(f: Callable[[Any], Any], ws: Any) -> Any:
    """Return the derivatives of the sum of all results, with respect to the values of each
    device.
    """
    units = [_unit(ws.shape, i) for i in np.ndindex(ws.shape)]
    made = np.stack([_difference(lambda ws: f(ws).sum(0), ws, unit) for unit in units], -1)
    return np.moveaxis(made.reshape(-1, *ws.shape), 1, 0)


def outer_derivatives(
    case: Case, mapped: Callable[[Any, Any], Any], top: Any, np_: Any
) -> dict[str, Any]:
    """Return the derivatives of the mapped function, with respect to `w` and all of `x`."""
    w, x = np_.asarray(W, "float32"), np_.asarray(X, "float32")
    steps = np_.asarray(STEP, "float32"), np_.asarray(V, "float32")

    at = (w,) if case.closed else (w, x)

    def function(*moving: Any) -> Any:
        return mapped(*moving, *(w, x)[len(moving) :])

    def loss(*moving: Any) -> Any:
        return (function(*moving) ** 2).sum()

    numbers = tuple(range(len(at)))
    steps = steps[: len(at)]
    made = {"grad": top.grad(loss, numbers)(*at)}
    if case.forward:
        made["jvp"] = top.jvp(function, at, steps)[1]
        made["grad of jvp"] = top.grad(lambda *at: top.jvp(loss, at, steps)[1], numbers)(*at)
    return made


def measure_outer_derivatives(case: Case, checked: bool) -> dict[str, Any]:
    k = Stacked(checked)

    def mapped(z: Any) -> Any:
        w, x = z[: len(W)], z[len(W) :].reshape(COUNT, -1)
        made = case.body(k, np.tile(w, (COUNT, 1)), x)
        return made[0] if case.shared else made

    def loss(z: Any) -> float:
        return float((mapped(z) ** 2).sum())

    def gradient(z: Any) -> Any:
        return np.array([_difference(loss, z, unit) for unit in np.eye(len(z))])

    z = np.concatenate([W, X])
    step = np.concatenate([STEP, 0 * V if case.closed else V])
    parts = partial(np.split, indices_or_sections=[len(W)])
    return {
        "grad": tuple(parts(gradient(z))),
        "jvp": _difference(mapped, z, step),
        "grad of jvp": tuple(parts(_difference(gradient, z, step))),
    }


def _unit(shape: tuple[int, ...], place: tuple[int, ...]) -> Any:
    made = np.zeros(shape)
    made[place] = 1
    return made


def _difference(f: Callable[[Any], Any], at: Any, step: Any) -> Any:
    """Return the derivative along a direction, by central differences of the fourth order."""
    h = 3e-3
    one = (f(at + h * step) - f(at - h * step)) * 8
    two = f(at + 2 * h * step) - f(at - 2 * h * step)
    return (one - two) / (12 * h)


def is_shared(case: Case, mode: str) -> bool:
    """Return whether the derivative is the same on all devices, with `check_vma`."""
    of_result = mode in ("jvp", "linearize", "jacfwd", "vmap of jvp", "jacrev")
    return case.shared if of_result else True
