"""Functions with custom vmap rules."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap as theirs, sequential_vmap as one_by_one

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.errors import VectorizeError
from shardir.frontend.errors import ArgumentError, BatchError

X = np.arange(6, dtype="f").reshape(3, 2)
W = np.arange(2, dtype="f") + 1


def make_function_with_rule(make: Any, np_: Any) -> tuple[Any, list[Any]]:
    """Return a function whose rule multiplies by ten, and the recorded calls of the rule."""
    seen: list[Any] = []

    def plain(x: Any, w: Any) -> Any:
        return {"y": x * w, "n": np_.sum(w)}

    def rule(size: int, in_batched: Any, x: Any, w: Any) -> Any:
        seen.append((size, list(in_batched), x.shape, w.shape))
        many = in_batched[1]
        out = {"y": 10 * (x * w), "n": np_.sum(w, axis=-1)}
        return out, {"y": True, "n": many}

    f = make(plain)
    f.def_vmap(rule)
    return f, seen


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "not mapped": lambda lib, f, lax: f(X, W),
    "in a jit": lambda lib, f, lax: lib.jit(f)(X, W),
    "one argument": lambda lib, f, lax: lib.vmap(f, (0, None), {"y": 0, "n": None})(X, W),
    "both": lambda lib, f, lax: lib.vmap(f)(X, X + 1),
    "within a jit": lambda lib, f, lax: lib.jit(lib.vmap(f))(X, X + 1),
    "twice": lambda lib, f, lax: lib.vmap(lib.vmap(f))(np.stack([X, X]), np.stack([X, X])),
    "in a loop": lambda lib, f, lax: lib.vmap(
        lambda x: lax.fori_loop(0, 2, lambda i, x: f(x, x)["y"], x)
    )(X),
    "derivative": lambda lib, f, lax: lib.grad(lambda x: lib.vmap(f)(x, x)["y"].sum())(X),
    "forward": lambda lib, f, lax: lib.jvp(lambda x: lib.vmap(f)(x, x)["y"], (X,), (X,)),
}


@pytest.mark.parametrize("call", CALLS)
def test_rules_receive_the_arguments_of_jax(call: str) -> None:
    (ours, seen), (other, wanted) = (
        make_function_with_rule(sd.custom_vmap, snp),
        make_function_with_rule(theirs, jnp),
    )
    found = CALLS[call](sd, ours, lax)
    expected = CALLS[call](jax, other, jax.lax)
    for one, two in zip(sd.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    if call in ("one argument", "both"):
        assert seen == wanted[:1]


def test_sequential_vmap() -> None:
    def program(lib: Any, make: Any, np_: Any) -> Any:
        def f(x: Any, w: Any) -> Any:
            return {"y": np_.sin(x) * w}

        return lib.vmap(make(f), (0, None))(X, W)

    found, expected = program(sd, sd.sequential_vmap, snp), program(jax, one_by_one, jnp)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-6)
    mapped = sd.vmap(sd.sequential_vmap(snp.sin))
    assert "while" in str(sd.make_ir(mapped)(X)) or "scan" in str(sd.make_ir(mapped)(X))


def test_the_rule_may_use_the_function() -> None:
    @sd.custom_vmap
    def f(x: Any) -> Any:
        return x + 1

    @f.def_vmap
    def rule(size: int, in_batched: Any, x: Any) -> Any:
        return f(x.reshape(-1)).reshape(x.shape) * 2, True

    np.testing.assert_array_equal(sd.vmap(f)(X), 2 * (X + 1))
    np.testing.assert_array_equal(sd.vmap(lambda x: f(x) + W)(X), 2 * (X + 1) + W)


def vmap_error(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value).partition("\n")[0]


def test_invalid_rules_are_errors() -> None:
    @sd.custom_vmap
    def f(x: Any) -> Any:
        return x

    assert vmap_error(VectorizeError, lambda: sd.vmap(f)(X)) == (
        "custom_vmap f is mapped and has no rule; give it one with def_vmap"
    )
    f.def_vmap(lambda size, in_batched, x: x)
    assert vmap_error(BatchError, lambda: sd.vmap(f)(X)).startswith(
        "the rule of f must return (results, out_batched); it returned "
    )
    f.def_vmap(lambda size, in_batched, x: (x[0], True))
    assert vmap_error(BatchError, lambda: sd.vmap(f)(X)) == (
        "the rule of f gives f32[2], and it must be f32[3, 2]"
    )
    f.def_vmap(lambda size, in_batched, x: ((x, x), True))
    assert vmap_error(BatchError, lambda: sd.vmap(f)(X)) == (
        "the rule of f returned results in the containers (*, *); return results in those of the "
        "function's results, *"
    )
    f.def_vmap(lambda size, in_batched, x: (x, (True, True)))
    assert vmap_error(BatchError, lambda: sd.vmap(f)(X)) == (
        "the rule of f returned out_batched in the containers (*, *); return out_batched in those "
        "of the function's results, *"
    )

    def closing(y: Any) -> Any:
        @sd.custom_vmap
        def g(x: Any) -> Any:
            return x + y

        g.def_vmap(lambda size, in_batched, x: (x, in_batched[0]))
        return g(y)

    assert vmap_error(VectorizeError, lambda: sd.vmap(closing)(X)) == (
        "g captures a mapped value; pass it as an argument"
    )
    odd: Any = 3
    for call, word in ((sd.custom_vmap, "custom_vmap"), (f.def_vmap, "def_vmap of f")):
        with pytest.raises(ArgumentError) as caught:
            call(odd)
        assert str(caught.value).startswith(f"{word} takes a function, got 3\n")
