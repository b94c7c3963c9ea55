"""`test_util`: derivatives that agree with finite differences, and those that do not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax, numpy as snp
from shardir.errors import ShardirError
from shardir.frontend.config import config
from shardir.test_util import DerivativeMismatchError, check_grads, check_jvp, check_vjp
from tests.error_assertions import first_line, raw
from tests.optional_dependencies import require

X = np.array([0.5, 1.5, -0.7])


def blocks(tree: Any, n: Any) -> Any:
    return {"a": snp.sin(tree["x"]) * tree["y"] ** n, "n": n + 1}


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (snp.sin, (0.5,)),
    (lambda x, y: (x @ y, snp.tanh(x)), (X, X[::-1])),
    (blocks, ({"x": X, "y": X + 2}, 2)),
    (lambda x: lax.scan(lambda c, y: (c * y, c + y), 1.0, x), (X,)),
    (lambda x: x * snp.exp(1j * x), (X + 1j,)),
    (lambda x: snp.abs(x) ** 2, (X + 1j,)),
]


@pytest.mark.parametrize(("f", "args"), CASES)
@pytest.mark.parametrize("x64", [False, True])
def test_derivatives_agree(f: Any, args: Any, x64: bool) -> None:
    with config(enable_x64=x64):
        check_grads(f, args, order=2 if x64 else 1, modes=("fwd", "rev", "lin"))
        check_jvp(f, partial(sd.jvp, f), args)
        check_vjp(f, partial(sd.vjp, f), args)


@sd.custom_jvp
def wrong(x: Any) -> Any:
    return snp.sin(x)


wrong.defjvps(lambda tangent, result, x: tangent * snp.cos(x) * 1.1)


@sd.custom_jvp
def wrong_slope(x: Any) -> Any:
    return snp.sin(x)


wrong_slope.defjvps(lambda tangent, result, x: tangent * lax.stop_gradient(snp.cos(x)))


def test_wrong_derivatives_are_errors() -> None:
    with config(enable_x64=True):
        for mode, name in (("fwd", "tangents of the JVP"), ("lin", "tangents of the linearization"),
                           ("rev", "gradient of the VJP along a direction")):  # fmt: skip
            with pytest.raises(DerivativeMismatchError) as caught:
                check_grads(wrong, (0.5,), order=1, modes=mode)
            assert first_line(caught).startswith(
                f"the {name} differ from finite differences: result 0 has "
            )
            assert isinstance(caught.value, AssertionError)
            check_grads(wrong, (0.5,), order=1, modes=mode, rtol=0.2)
            check_grads(wrong_slope, (0.5,), order=1, modes=mode)
            with pytest.raises(DerivativeMismatchError, match=" of the "):
                check_grads(wrong_slope, (0.5,), order=2, modes=mode)
        check_grads(wrong, (0.5,), order=1, atol={"float64": 0.2})
        with pytest.raises(DerivativeMismatchError):
            check_grads(wrong, (0.5,), order=1, atol={"float32": 0.2})


def test_other_results_are_errors() -> None:
    def jvp(args: Any, tangents: Any) -> Any:
        return sd.jvp(lambda x: snp.sin(x) + 1, args, tangents)

    with pytest.raises(DerivativeMismatchError) as caught:
        check_jvp(snp.sin, jvp, (0.0,))
    assert first_line(caught) == (
        "the results of the JVP differ from those of the function: result 0 has 1 at [], not 0"
    )
    with pytest.raises(DerivativeMismatchError) as shaped:
        check_vjp(snp.sin, lambda x: sd.vjp(lambda x: x[None], x), (0.0,), err_msg="my VJP")
    assert first_line(shaped) == "result 0 of the results of my VJP has the shape (1,), not ()"
    with pytest.raises(DerivativeMismatchError, match=r"^the results of the VJP are in "):
        check_vjp(snp.sin, lambda x: sd.vjp(lambda x: (x,), x), (0.0,))


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: check_grads(snp.sin, (0.5,), 1, modes="back"),
     "modes of check_grads has 'back'; they are fwd, rev, lin"),
    (lambda: check_grads(snp.sin, raw(0.5), 1),
     "args of check_grads is a tuple or a list, got 0.5"),
    (lambda: check_grads(snp.sin, (0.5,), 1, modes=raw(2)),
     "modes of check_grads is a tuple or a list, got 2"),
    (lambda: check_vjp(snp.sin, partial(sd.vjp, snp.sin), raw(X)),
     "args of check_vjp is a tuple or a list, got float64[3]"),
    (lambda: check_grads(snp.sin, (0.5,), 0), "order of check_grads is at least 1, got 0"),
    (lambda: check_grads(snp.sin, (0.5,), 1, eps=raw("x")), "eps is a real number, got 'x'"),
    (lambda: check_grads(snp.sin, (0.5,), 1, atol=raw("x")),
     "a tolerance is a real number, got 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message


def test_tolerances_and_steps_are_those_of_jax() -> None:
    require("jax")
    import jax
    from jax.test_util import check_grads as theirs

    for check, function in ((check_grads, snp.sin), (theirs, jax.numpy.sin)):
        check(function, (np.float32(0.5),), 1, eps=0.1, rtol=1e-2)
        with pytest.raises(AssertionError):
            check(function, (np.float32(0.5),), 1, eps=0.1, rtol=1e-6, atol=1e-6)
        check(function, (np.float32(0.5),), 1)
