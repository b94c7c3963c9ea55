"""`custom_jvp`, `custom_vjp` and `custom_gradient`: which rule applies, and errors of rules."""

from typing import Any

import numpy as np
import pytest

from shardir import (
    PartitionSpec,
    cpu_devices,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    grad,
    jit,
    jvp,
    lax,
    linearize,
    make_mesh,
    shard_map,
    value_and_grad,
    vjp,
    vmap,
)
from shardir.errors import DifferentiateError, ShardirError
from shardir.frontend.numpy import api as snp
from shardir.frontend.tracing.typeof import typeof
from shardir.frontend.transforms.custom_rules import SymbolicZero
from tests.error_assertions import first_line


def doubled() -> Any:
    """sin, whose rule returns twice its derivative."""

    @custom_jvp
    def f(x: Any) -> Any:
        return snp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), 2 * snp.cos(primals[0]) * tangents[0]))
    return f


def tripled() -> Any:
    """sin(x) * y, whose rule returns three times its gradient for x and zero for y."""

    @custom_vjp
    def f(x: Any, y: Any) -> Any:
        return snp.sin(x) * y

    f.defvjp(
        lambda x, y: (f(x, y), (x, y)),
        lambda saved, g: (3 * snp.cos(saved[0]) * saved[1] * g, None),
    )
    return f


def test_calls_without_a_derivative_compute_the_function() -> None:
    assert float(doubled()(0.0)) == 0
    assert "custom" not in jit(doubled()).lower(1.0).as_text()


def test_a_custom_jvp_applies_to_every_derivative() -> None:
    f = doubled()
    assert float(grad(f)(0.0)) == 2
    assert float(jvp(f, (0.0,), (3.0,))[1]) == 6
    assert float(linearize(f, 0.0)[1](3.0)) == 6
    assert float(vjp(f, 0.0)[1](3.0)[0]) == 6
    np.testing.assert_allclose(float(grad(grad(f))(1.0)), -2 * np.sin(1.0), rtol=1e-6)


def test_a_custom_vjp_applies_to_every_gradient() -> None:
    f = tripled()
    assert float(grad(f)(0.0, 2.0)) == 6
    assert [float(g) for g in vjp(f, 0.0, 2.0)[1](1.0)] == [6, 0]
    np.testing.assert_allclose(float(grad(grad(f))(1.0, 2.0)), -6 * np.sin(1.0), rtol=1e-6)


def test_vmap_over_some_arguments() -> None:
    f, xs = tripled(), snp.array([0.0, 1.0])
    np.testing.assert_allclose(vmap(grad(f), (0, None))(xs, 2.0), 6 * np.cos([0.0, 1.0]), rtol=1e-6)
    shared = grad(lambda x: snp.sum(vmap(f, (None, 0))(x, xs)))
    assert float(shared(0.0)) == 3


def test_arguments_in_containers_and_integers() -> None:
    @custom_vjp
    def f(params: Any, n: Any) -> Any:
        return {"y": params["w"] * n}

    def back(saved: Any, g: Any) -> Any:
        return {"w": 10 * g["y"]}, None

    f.defvjp(lambda params, n: (f(params, n), None), back)
    assert float(grad(lambda w: f({"w": w}, 3)["y"])(1.0)) == 10


def test_nondiff_arguments_are_passed_first() -> None:
    seen = []

    def f(g: Any, x: Any) -> Any:
        return g(x)

    ahead = custom_jvp(f, nondiff_argnums=(0,))

    @ahead.defjvp
    def rule(g: Any, primals: Any, tangents: Any) -> Any:
        seen.append(g)
        return ahead(g, *primals), 5 * tangents[0]

    assert float(grad(lambda x: ahead(snp.sin, x))(1.0)) == 5
    back = custom_vjp(f, nondiff_argnums=0)

    def backward(g: Any, saved: Any, ct: Any) -> Any:
        seen.append(g)
        return (7 * ct,)

    back.defvjp(lambda g, x: (g(x), None), backward)
    assert float(grad(lambda x: back(snp.sin, x))(1.0)) == 7
    assert seen == [snp.sin, snp.sin]


def test_rules_for_each_argument() -> None:
    @custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defjvps(lambda t, out, x, y: 2 * t * y, None)
    assert [float(g) for g in grad(f, (0, 1))(3.0, 5.0)] == [10, 0]


def test_keyword_arguments_are_passed_by_position() -> None:
    f = tripled()
    assert float(grad(lambda x: f(y=2.0, x=x))(0.0)) == 6


def test_rules_may_capture_outer_values() -> None:
    def outer(x: Any, mask: Any) -> Any:
        weight = mask * 2

        @custom_jvp
        def f(a: Any) -> Any:
            return a * weight

        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * weight))
        return snp.sum(f(x))

    np.testing.assert_array_equal(vmap(grad(outer))(snp.ones(2), snp.array([1.0, 3.0])), [2, 6])


def test_custom_gradient_returns_value_and_pullback() -> None:
    @custom_gradient
    def f(x: Any) -> Any:
        e = snp.exp(x)
        return snp.log(1 + e), lambda g: 5 * g * (1 - 1 / (1 + e))

    np.testing.assert_allclose(float(grad(f)(0.0)), 2.5)
    np.testing.assert_allclose(float(grad(grad(f))(0.0)), 1.25)

    @custom_gradient
    def two(x: Any, y: Any) -> Any:
        return x * y, lambda g: (g * y, g * x)

    assert [float(g) for g in grad(two, (0, 1))(3.0, 5.0)] == [5, 3]


def test_rules_may_compute_in_wider_floats() -> None:
    @custom_vjp
    def f(x: Any) -> Any:
        return x * x

    f.defvjp(lambda x: (f(x), x), lambda x, g: (2 * x.astype("float32") * g.astype("float32"),))
    x = snp.asarray([1.0, 3.0], "bfloat16")
    slope = jit(grad(lambda x: f(x).sum()))(x)
    assert slope.dtype == x.dtype
    np.testing.assert_array_equal(slope.astype("float32"), [2.0, 6.0])


def test_custom_derivatives_in_loops() -> None:
    f = doubled()

    def loop(x: Any) -> Any:
        return lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]

    np.testing.assert_allclose(
        float(jit(grad(loop))(1.0)), 4 * np.cos(np.sin(1.0)) * np.cos(1.0), rtol=1e-6
    )
    ahead = jvp(lambda x: lax.fori_loop(0, 2, lambda i, c: f(c), x), (1.0,), (1.0,))[1]
    np.testing.assert_allclose(float(ahead), float(grad(loop)(1.0)), rtol=1e-6)


def test_value_and_grad_uses_the_rule() -> None:
    value, slope = value_and_grad(doubled())(0.0)
    assert (float(value), float(slope)) == (0, 2)


def test_methods_may_have_custom_derivatives() -> None:
    class Layer:
        @custom_jvp
        def call(self, x: Any) -> Any:
            return x

    assert Layer.call.__name__ == "call"


def test_invalid_rules_are_errors() -> None:
    bare = custom_jvp(lambda x: x)
    with pytest.raises(DifferentiateError) as error:
        bare(1.0)
    assert first_line(error) == "custom_jvp lambda has no rule; give it one with defjvp"

    def f(x: Any) -> Any:
        return x

    wrong = custom_jvp(f)
    wrong.defjvp(lambda primals, tangents: primals[0])
    with pytest.raises(DifferentiateError) as error:
        grad(wrong)(1.0)
    assert first_line(error) == (
        "the rule of f must return (results, tangents); it returned Tracer(f32[], weak)"
    )
    wrong.defjvp(lambda primals, tangents: (primals[0], snp.ones(3)))
    with pytest.raises(DifferentiateError) as error:
        grad(wrong)(1.0)
    assert first_line(error) == "a tangent of the rule of f is f32[3], and it must be f32[]"

    back = custom_vjp(f)
    with pytest.raises(DifferentiateError) as error:
        back(1.0)
    assert first_line(error) == "custom_vjp f has no rule; give it one with defvjp"
    back.defvjp(lambda x: (x, None), lambda saved, g: g)
    with pytest.raises(DifferentiateError) as error:
        grad(back)(1.0)
    assert first_line(error) == (
        "the backward rule of f must return a tuple with a gradient for each of 1 argument; it "
        "returned Tracer(f32[], weak)"
    )
    with pytest.raises(DifferentiateError) as error:
        jvp(back, (1.0,), (1.0,))
    assert first_line(error) == (
        "%0 = f has a custom_vjp, which defines no forward-mode derivative; take grad or vjp of "
        "it, or define a custom_jvp"
    )


def test_derivatives_of_captured_values_are_errors() -> None:
    def outer(x: Any) -> Any:
        y = x * 2
        f = custom_jvp(lambda a: a * y)
        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
        return f(1.0)

    with pytest.raises(DifferentiateError) as error:
        grad(outer)(1.0)
    assert first_line(error) == (
        "lambda has a custom derivative and closes over %y: f32[], whose derivative is needed too; "
        "pass it as an argument"
    )


def test_rules_inside_shard_map() -> None:
    """A rule applies inside of `shard_map`, unless its arguments would be parts of a global
    array.
    """

    def squares(x: Any) -> Any:
        return x * x

    def total(x: Any) -> Any:
        return lax.psum(x * x, "x")

    local, summed = custom_vjp(squares), custom_vjp(total)
    for f in (local, summed):
        f.defvjp(lambda x, f=f: (f(x), x), lambda x, g: (5 * x * g,))
    with cpu_devices(2):
        mesh, cut = make_mesh((2,), ("x",)), PartitionSpec("x")

        def mapped(f: Any, check_vma: bool = True) -> Any:
            whole = shard_map(
                f, mesh=mesh, in_specs=cut, out_specs=PartitionSpec(), check_vma=check_vma
            )
            return grad(lambda x: snp.sum(whole(x)))

        for slopes in (
            mapped(lambda x: lax.psum(local(x), "x"))(snp.arange(2.0)),
            mapped(summed)(snp.arange(2.0)),
        ):
            np.testing.assert_array_equal(slopes, [0, 5])
        with pytest.raises(DifferentiateError) as error:
            mapped(summed, check_vma=False)(snp.arange(2.0))
    assert first_line(error) == (
        "%0 = total has a custom_vjp and a result that is a sum over devices, which "
        "check_vma=False does not detect; move the sum out of it, or leave check_vma true"
    )


def test_a_rule_may_call_its_function_on_tangents() -> None:
    """The function is linear in the tangents, and the rule is not applied again."""

    @custom_jvp
    def triple(x: Any) -> Any:
        return 3.0 * x

    @triple.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return triple(x), triple(triple(t)) * snp.sin(x)

    np.testing.assert_allclose(grad(triple)(1.0), 9 * np.sin(1.0), rtol=1e-6)
    np.testing.assert_allclose(grad(grad(triple))(1.0), 9 * np.cos(1.0), rtol=1e-6)
    np.testing.assert_allclose(jvp(grad(triple), (1.0,), (1.0,))[1], 9 * np.cos(1.0), rtol=1e-6)


def test_invalid_nondiff_arguments_are_errors() -> None:
    with pytest.raises(ShardirError) as caught:
        custom_jvp(lambda x: x, nondiff_argnums=(5,))
    assert str(caught.value).startswith(
        "nondiff_argnums of lambda has 5, but its positional parameters are 1 (x)"
    )


def test_symbolic_zeros_mark_constant_arguments() -> None:
    """With `symbolic_zeros`, every transformation passes which arguments are differentiated."""
    asked: list[tuple[bool, bool]] = []

    @custom_jvp
    def forward(x: Any, y: Any) -> Any:
        return x * y

    def rule(primals: Any, tangents: Any) -> Any:
        x, y = primals
        moves = [not isinstance(t, SymbolicZero) for t in tangents]
        asked.append((moves[0], moves[1]))
        parts = [t * z for t, z, moved in zip(tangents, (y, x), moves, strict=True) if moved]
        return forward(x, y), sum(parts) if parts else SymbolicZero(typeof(x).to_tangent_aval())

    forward.defjvp(rule, symbolic_zeros=True)

    @custom_vjp
    def backward(x: Any, y: Any) -> Any:
        return x * y

    def ahead(x: Any, y: Any) -> Any:
        asked.append((x.perturbed, y.perturbed))
        return x.value * y.value, (x.value, y.value)

    backward.defvjp(ahead, lambda kept, g: (g * kept[1], g * kept[0]), symbolic_zeros=True)
    x, y = np.float32(2), np.float32(3)
    for f in (forward, backward):
        asked.clear()
        assert float(grad(f)(x, y)) == 3
        assert float(grad(f, argnums=1)(x, y)) == 2
        assert list(map(float, grad(f, argnums=(0, 1))(x, y))) == [3, 2]
        np.testing.assert_array_equal(vmap(grad(f), in_axes=(0, None))(snp.ones(2), y), [3, 3])
        assert float(grad(jit(f))(x, y)) == 3
        assert asked == [(True, False), (False, True), (True, True), (True, False), (True, False)]
    asked.clear()
    assert jvp(lambda x: forward(x, y), (x,), (x,)) == (6, 6)
    assert asked == [(True, False)]


def test_a_gradient_inside_may_close_over_an_argument() -> None:
    @custom_vjp
    def slope(x: Any, y: Any) -> Any:
        return grad(lambda z: snp.sum(snp.sin(z) * y))(x)

    slope.defvjp(
        lambda x, y: (slope(x, y), (x, y)),
        lambda saved, g: (-g * snp.sin(saved[0]) * saved[1], g * snp.cos(saved[0])),
    )
    x, y = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(jit(slope)(x, y), np.cos(x) * y, rtol=1e-6)
    gradient = jit(grad(lambda x, y: snp.sum(slope(x, y))))(x, y)
    np.testing.assert_allclose(gradient, -np.sin(x) * y, rtol=1e-6)


def test_negative_positions_of_arguments_without_derivative_count_from_the_last_one() -> None:
    def power(x: Any, *args: Any) -> Any:
        return x ** args[-1]

    f = custom_vjp(power, nondiff_argnums=(-1,))
    f.defvjp(
        lambda *args: (f(*args), args[:-1]),
        lambda n, saved, g: (g * n * saved[0] ** (n - 1), *(None for _ in saved[1:])),
    )
    h = custom_jvp(power, nondiff_argnums=(-1,))
    h.defjvp(lambda n, xs, ts: (h(*xs, n), ts[0] * n * xs[0] ** (n - 1)))
    for each in (f, h):
        assert float(grad(each)(2.0, 3)) == 12
        assert float(grad(each)(2.0, 5.0, 3)) == 12


def test_an_error_of_a_rule_states_the_line_of_the_derivative_once() -> None:
    function = custom_vjp(lambda w, x: w * x)
    function.defvjp(lambda w, x: (w * x, x), lambda x, ct: (ct * x, ct))
    loss = lambda w: snp.sum(function(w, np.ones(3, np.float32)))  # noqa: E731
    with pytest.raises(DifferentiateError) as error:
        grad(loss)(np.float32(2))
    text = str(error.value)
    expected = "a gradient of the backward rule of lambda is f32[3], and it must be f32[]\n"
    assert text.startswith(expected)
    assert text.count(" --> ") == 1


def test_the_backward_rule_branches_on_python_numbers_of_the_forward_rule() -> None:
    @custom_vjp
    def scaled(x: Any) -> Any:
        return x * 2

    def backward(residuals: Any, g: Any) -> Any:
        is_tripled, (factor, x) = residuals
        assert (is_tripled, factor) == (True, 3)
        return (g * factor * x,)

    scaled.defvjp(lambda x: (x * 2, (True, (3, x))), backward)
    for gradient in (grad(scaled), jit(grad(scaled)), grad(jit(scaled))):
        assert gradient(np.float32(5)) == 15
    np.testing.assert_array_equal(vmap(grad(scaled))(np.arange(3, dtype=np.float32)), [0, 3, 6])


def test_a_backward_rule_returns_a_symbolic_zero() -> None:
    @custom_vjp
    def product(x: Any, y: Any) -> Any:
        return x * y

    def backward(y: Any, g: Any) -> Any:
        return g * y, SymbolicZero(typeof(y).to_tangent_aval())

    product.defvjp(lambda x, y: (x * y, y), backward)
    assert grad(product, (0, 1))(np.float32(3), np.float32(5)) == (5, 0)


def test_the_type_of_a_tangent() -> None:
    assert str(typeof(np.ones(3, np.float32)).to_tangent_aval()) == "float32[3]"
    assert str(typeof(np.ones(3, np.int32)).to_tangent_aval()) == "float0[3]"
