"""Derivatives inside and outside of `shard_map`, for many functions and derivative modes.

The results are compared with finite differences, measured in NumPy on the values of all devices.
JAX 0.10.2 gives the same results wherever it supports the case, with two exceptions. Its `jacrev`
with respect to a replicated value adds the contributions of all devices, where the rows of a device
are those of its own results, as in `jacfwd`. And it does not return from a gradient of a branch
that only some devices take.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import PartitionSpec as P, lax
from shardir.errors import DifferentiateError
from shardir.frontend.errors import ShardingError
from shardir.interpret.interpreter import run
from tests.frontend.transforms.device_derivatives import (
    W,
    X,
    inner_derivatives,
    is_shared,
    measure_derivatives,
    measure_outer_derivatives,
    modes,
    outer_derivatives,
)
from tests.frontend.transforms.per_device_functions import (
    AXIS,
    CASES,
    COUNT,
    Case,
    Local,
    random_case,
)

pytestmark = pytest.mark.sample(5)


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    with sd.cpu_devices(COUNT):
        yield sd.make_mesh((COUNT,), (AXIS,))


def interpret_traced(f: Any, *args: Any) -> Any:
    """Return the results of the reference interpreter for the program before partitioning."""
    arrays = [np.asarray(arg, "float32") for arg in args]
    lowered = sd.jit(f).lower(*arrays)
    # The compiled program no longer has the operations that derivatives need.
    assert not re.search(r"= vary\(|shared=true", lowered.as_text())
    made = run(lowered.module, arrays)
    return sd.tree.unflatten(sd.tree.structure(lowered.out_info), made)


def agree(made: Any, expected: Any, mode: str = "") -> None:
    made, expected = np.asarray(made), np.asarray(expected)
    assert made.shape == expected.shape, mode
    np.testing.assert_allclose(made, expected, 2e-3, 2e-3, err_msg=mode)


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_derivatives_agree_with_differences(case: Case, checked: bool, mesh: sd.Mesh) -> None:
    compare(case, checked, mesh)


def test_derivatives_of_random_functions(request: pytest.FixtureRequest, mesh: sd.Mesh) -> None:
    for seed in range(300 if request.config.getoption("--long") else 4):
        compare(random_case(seed), seed % 2 == 0, mesh)


def compare(case: Case, checked: bool, mesh: sd.Mesh) -> None:
    """Compare all derivatives of a function, inside and outside, with differences."""
    k = Local(sd, snp, lax, checked)

    def mapped(f: Any, out: Any) -> Any:
        return sd.shard_map(f, mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=out, check_vma=checked)

    def is_one(mode: str) -> bool:
        return checked and is_shared(case, mode)

    def taken(w: Any, x: Any) -> Any:
        made = inner_derivatives(case, k, w, x)
        return {mode: y if is_one(mode) else y[None] for mode, y in made.items()}

    specs = {mode: P() if is_one(mode) else P(AXIS) for mode in modes(case)}
    made, expected = (
        interpret_traced(mapped(taken, specs), W, X),
        measure_derivatives(case, checked),
    )
    for mode in modes(case):
        agree(
            made[mode],
            expected[mode][0] if is_one(mode) else expected[mode],
            f"{case.name}, {mode}",
        )

    if not checked and not case.unchecked:
        return

    def body(w: Any, x: Any) -> Any:
        y = case.body(k, w, x)
        return y if case.shared else y[None]

    outer = mapped(body, P() if case.shared else P(AXIS))
    made, expected = (
        interpret_traced(lambda: outer_derivatives(case, outer, sd, snp)),
        measure_outer_derivatives(case, checked),
    )
    for mode, got in made.items():
        if isinstance(got, tuple):
            for one, other in zip(got, expected[mode], strict=False):
                agree(one, other, mode)
        else:
            agree(got, expected[mode], mode)


# Classes of programs that the test matrix does not contain.


def total(v: Any) -> Any:
    return lax.psum(v.sum(), AXIS)


WHOLE = P()
XS = X.reshape(COUNT, -1).sum(1)
"""What each device has of `X`, added up."""


def in_shards(f: Any, out: Any = WHOLE, mesh: Any = None, **options: Any) -> Any:
    mesh = sd.make_mesh((COUNT,), (AXIS,)) if mesh is None else mesh
    cut = sd.shard_map(f, mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=out, **options)
    return interpret_traced(cut, 2.0, X)


def test_derivatives_of_carries_that_become_varying() -> None:
    """The first iteration starts with a replicated value, and later iterations have varying
    values.
    """

    def scanned(w: Any, x: Any) -> Any:
        def step(c: Any, _: None) -> Any:
            return c + x.sum(), sd.grad(lambda c: (c * c * x).sum())(c)

        return lax.scan(step, w * 0, None, length=3)[1][None]

    agree(in_shards(scanned, P(AXIS)), np.stack([2 * k * XS * XS for k in range(3)], 1))

    def looped(w: Any, x: Any) -> Any:
        def step(carry: Any) -> Any:
            i, c = carry
            return i + 1, c + 0.2 * sd.grad(lambda c: (c * c * x).sum())(c) + 0 * x[0]

        return lax.while_loop(lambda carry: carry[0] < 3, step, (0, w))[1][None]

    agree(in_shards(looped, P(AXIS)), 2 * (1 + 0.4 * XS) ** 3)


def test_derivatives_in_iterations_and_branches_of_some_devices() -> None:
    """The derivative is local to the device: nothing is summed over devices that take another
    branch.
    """

    def rounds(w: Any, x: Any) -> Any:
        last = lax.axis_index(AXIS)

        def step(carry: Any) -> Any:
            i, v = carry
            return i + 1, v + sd.grad(lambda v: v * v)(v)

        return lax.while_loop(lambda carry: carry[0] < last, step, (0, w))[1][None]

    agree(in_shards(rounds, P(AXIS)), [2 * 3**k for k in range(COUNT)])

    def branch(w: Any, x: Any) -> Any:
        return lax.cond(
            lax.axis_index(AXIS) % 2 == 0,
            lambda: sd.grad(lambda w: (w * x).sum())(w),
            lambda: w,
        )[None]

    agree(in_shards(branch, P(AXIS)), np.where(np.arange(COUNT) % 2 == 0, XS, 2))


@pytest.fixture
def wide() -> Iterator[sd.Mesh]:
    with sd.cpu_devices(2 * COUNT):
        yield sd.make_mesh((COUNT, 2), (AXIS, "t"))


def test_nested_shard_map(wide: sd.Mesh) -> None:
    def inner(f: Any, out: Any = WHOLE) -> Any:
        return sd.shard_map(f, mesh=wide, in_specs=(P(), P("t")), out_specs=out, axis_names={"t"})

    def outer(f: Any, out: Any = WHOLE) -> Any:
        return in_shards(f, out, wide, axis_names={AXIS})

    slope = inner(lambda w, x: sd.grad(lambda w: (w * x).sum())(w))
    agree(outer(slope), X.sum())
    square = inner(lambda w, x: lax.psum((w * w * x).sum(), "t"))
    agree(outer(lambda w, x: sd.grad(lambda w: square(w, x))(w)), 4 * X.sum())
    # The value varies along the outer axis and is replicated along the inner axis.
    agree(outer(lambda w, x: slope(w * x.sum(), x)[None], P(AXIS)), XS)


def test_mesh_axes_and_vmap_axes_together(wide: sd.Mesh) -> None:
    def mapped(w: Any, x: Any) -> Any:
        def one(b: Any) -> Any:
            return lax.psum(w * w * b, ("b", AXIS))

        return sd.vmap(one, axis_name="b")(x).sum()

    agree(in_shards(lambda w, x: sd.grad(lambda w: mapped(w, x))(w)), 2 * 2 * X.sum() * 2)
    each = in_shards(
        lambda w, x: sd.vmap(lambda b: sd.grad(lambda w: lax.psum(w * w * b, AXIS))(w))(x)
    )
    agree(each, 4 * X.reshape(COUNT, -1).sum(0))

    def twice(w: Any, x: Any) -> Any:
        return lax.psum(w * lax.psum((w * x).sum(), AXIS), "t")

    cut = sd.shard_map(
        lambda w, x: (sd.grad(twice)(w, x), sd.jvp(lambda w: twice(w, x), (w,), (1.0,))[1]),
        mesh=wide, in_specs=(P(), P((AXIS, "t"))), out_specs=P(),
    )  # fmt: skip
    for made in interpret_traced(cut, 2.0, X):
        agree(made, 4 * X.sum())


def test_a_backward_rule_may_take_derivatives() -> None:
    @sd.custom_vjp
    def f(w: Any, x: Any) -> Any:
        return snp.sin(w) * x

    f.defvjp(
        lambda w, x: (f(w, x), (w, x)),
        lambda saved, g: sd.vjp(lambda w, x: snp.sin(w) * x, *saved)[1](g),
    )

    @sd.custom_gradient
    def g(w: Any) -> Any:
        return snp.sin(w), lambda c: c * snp.cos(w)

    want = np.cos(2) * X.sum()
    agree(in_shards(lambda w, x: sd.grad(lambda w: f(w, x).sum())(w)), want)
    agree(in_shards(lambda w, x: sd.grad(lambda w: (g(w) * x).sum())(w)), want)
    mesh = sd.make_mesh((COUNT,), (AXIS,))
    outer = sd.shard_map(f, mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=P(AXIS))
    agree(interpret_traced(sd.grad(lambda w, x: outer(w, x).sum()), 2.0, X), want)


def test_higher_derivatives() -> None:
    def quartic(w: Any, x: Any) -> Any:
        return total(w**4 * x)

    third = sd.grad(sd.grad(sd.grad(quartic)))
    agree(in_shards(third), 48 * X.sum())
    agree(
        in_shards(lambda w, x: sd.jvp(lambda w: sd.grad(sd.grad(quartic))(w, x), (w,), (1.0,))[1]),
        48 * X.sum(),
    )


def test_jacobians_of_varying_and_replicated_results() -> None:
    def f(w: Any, x: Any) -> Any:
        return {"own": w * w * x + total(w * x) * w, "all": total(w * x)}

    specs = {"own": P(AXIS), "all": P()}
    for way in (sd.jacrev, sd.jacfwd):
        made = in_shards(way(f), specs)
        agree(made["own"], 4 * X + 4 * X.sum())
        agree(made["all"], X.sum())


def first_line(error: Any) -> str:
    return str(error.value).splitlines()[0]


def test_a_varying_cotangent_of_a_replicated_result_is_an_error() -> None:
    with pytest.raises(ShardingError) as error:
        in_shards(lambda w, x: sd.vjp(lambda w: 2 * w, w)[1](x[0])[0])
    assert first_line(error) == (
        "the cotangent of the result for vjp of lambda may vary along 's', while the result does "
        "not; sum it (lax.psum), or make the value that the function returns vary (lax.pcast(..., "
        'to="varying"))'
    )
    with pytest.raises(ShardingError) as error:
        in_shards(lambda w, x: sd.linear_transpose(lambda w: (2 * w, 3 * w), w)((w, x[0]))[0])
    assert first_line(error).startswith(
        "the cotangent of result 1 for the transpose of lambda may vary along 's'"
    )


def test_a_varying_tangent_of_a_replicated_result_is_an_error() -> None:
    def body(w: Any, x: Any) -> Any:
        @sd.custom_jvp
        def f(w: Any) -> Any:
            return total(w * x)

        f.defjvp(lambda primals, tangents: (f(*primals), x.sum() * tangents[0]))
        return sd.grad(f)(w)

    with pytest.raises(DifferentiateError) as error:
        in_shards(body)
    assert first_line(error) == (
        "the rule of f returns a tangent that may differ between devices, but the result of f is "
        "replicated; reduce it as the function does, for example by lax.psum"
    )


def rule_with_sum(checked: bool = True, make_equal: Any = None) -> Any:
    """Return a `shard_map` of a function whose backward rule sums the gradient of a sharded
    argument.
    """

    def backward(x: Any, g: Any) -> Any:
        gradient = lax.psum(g * x["a"], AXIS)
        return ({"a": gradient if make_equal is None else make_equal(gradient)},)

    f = sd.custom_vjp(lambda x: x["a"] ** 2)
    f.defvjp(lambda x: (f(x), x), backward)
    mesh = sd.make_mesh((COUNT,), (AXIS,))
    return sd.shard_map(
        lambda x: f({"a": x}), mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=checked
    )


@pytest.mark.parametrize(
    "wrap", [lambda f: f, sd.jit, lambda f: lambda x: sd.vmap(f)(snp.stack([x, x]))]
)
def test_a_gradient_must_vary_as_its_argument(wrap: Any) -> None:
    with pytest.raises(DifferentiateError) as error:
        sd.grad(lambda x: wrap(rule_with_sum())(x).sum())(X)
    assert first_line(error) == (
        "the rule of lambda returns a gradient of argument x.a that does not vary along 's', and "
        "argument x.a does; return the value of each device, for example without lax.psum, or, if "
        "the devices have equal values, lax.pcast(value, 's', to=\"varying\")"
    )


def test_an_equal_gradient_of_a_varying_argument_is_cast() -> None:
    casts = rule_with_sum(make_equal=lambda g: lax.pcast(g, AXIS, to="varying"))
    zeros = rule_with_sum(make_equal=lambda g: snp.zeros(g.shape))
    summed = np.tile(X.reshape(COUNT, -1).sum(0), COUNT)
    for cut, want in ((casts, summed), (rule_with_sum(False), summed), (zeros, 0 * X)):
        agree(sd.grad(lambda x, cut=cut: cut(x).sum())(X), want)


def test_a_gradient_that_varies_where_its_argument_does_not_is_an_error() -> None:
    """It may be the contribution of a device, or a sum that an all-gather computed."""

    def rule(backward: Any) -> Any:
        f = sd.custom_vjp(lambda w: total(w * snp.ones(3)))
        f.defvjp(lambda w: (f(w), None), lambda _, g: (backward(g),))
        return in_shards(lambda w, x: sd.grad(f)(w) + 0 * total(x))

    for gather in (lax.all_gather, lambda g, axis: lax.pcast(g, axis, to="varying")):
        with pytest.raises(DifferentiateError) as error:
            rule(lambda g, gather=gather: gather(3 * g, AXIS).sum())
        assert first_line(error) == (
            "the rule of lambda returns a gradient of argument w that may vary along 's', and "
            "argument w does not; return lax.psum(gradient, 's') if each device computes its "
            "contribution, or lax.pmean(gradient, 's') if the devices have equal gradients"
        )
    agree(rule(lambda g: lax.psum(3 * g, AXIS)), 3 * COUNT)
    agree(rule(lambda g: lax.pmean(lax.all_gather(3 * g, AXIS).sum(), AXIS)), 3 * COUNT)


def test_a_rule_applies_to_the_types_of_its_call() -> None:
    """Derivatives outside of `shard_map` know which arguments were cast, also in a nested jit."""
    scale = sd.custom_vjp(lambda w, x: w * x)
    scale.defvjp(
        lambda w, x: (w * x, (w, x)), lambda saved, g: ((g * saved[1]).sum(), g * saved[0])
    )
    nested = sd.jit(lambda w, x: scale(w, x))
    mesh = sd.make_mesh((COUNT,), (AXIS,))

    def slope(cast: bool) -> Any:
        cut = sd.shard_map(
            lambda w, x: nested(lax.pcast(w, AXIS, to="varying") if cast else w, x),
            mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=P(AXIS),
        )  # fmt: skip
        return sd.grad(lambda w: cut(w, X).sum())(2.0)

    agree(slope(True), X.sum())
    with pytest.raises(DifferentiateError, match="returns a gradient of argument w that may vary"):
        slope(False)
    agree(slope(True), X.sum())


def test_linear_solve_sums_the_contributions_of_devices() -> None:
    """The rules of `custom_linear_solve` are derived from the equation."""

    def solve(w: Any, x: Any) -> Any:
        def apply(v: Any) -> Any:
            return v * x

        return lax.custom_linear_solve(apply, w * snp.ones(2), lambda _, b: b / x, symmetric=True)

    for way in (sd.grad, sd.jacfwd):
        agree(in_shards(lambda w, x, way=way: way(lambda w: total(solve(w, x)))(w)), (1 / X).sum())


def test_a_tangent_must_vary_as_its_result() -> None:
    def is_refused(rule: Any, what: str) -> None:
        f = sd.custom_jvp(snp.sin)
        f.defjvp(rule)
        for body in (lambda _, x: sd.jvp(f, (x,), (x,))[1], lambda _, x: sd.grad(f)(x[0])):
            with pytest.raises(DifferentiateError) as error:
                in_shards(body)
            assert first_line(error) == (
                f"the rule of sin returns {what}result 0 that does not vary along 's', and result "
                "0 of the function does; return the value of each device, for example without "
                "lax.psum, or, if the devices have equal values, lax.pcast(value, 's', "
                'to="varying")'
            )

    is_refused(lambda x, t: (snp.sin(*x), lax.psum(t[0], AXIS)), "a tangent of ")
    is_refused(lambda x, t: (lax.psum(snp.sin(*x), AXIS), lax.psum(t[0], AXIS)), "")


def test_transpose_of_loops_branches_and_checkpoints() -> None:
    """The residuals must not depend on the linear arguments, but may be results of an operation
    that does.
    """

    def f(v: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            return c * snp.sin(row), c

        last, each = lax.scan(step, v, snp.arange(3.0))
        return sd.checkpoint(lambda u: u * 3.0)(last) + each.sum(0)

    (made,) = sd.linear_transpose(f, 1.0)(1.0)
    agree(made, float(np.asarray(f(1.0))))
    with pytest.raises(DifferentiateError) as error:
        sd.linear_transpose(lambda v: lax.scan(lambda c, _: (c * v, None), v, None, 2)[0], 1.0)(1.0)
    assert first_line(error) == (
        "linear_transpose of lambda, which is not linear; use vjp, which linearizes a function at "
        "a point"
    )


def sent(f: Any, *args: Any) -> list[tuple[str, Any, int]]:
    """Return the communication of a program: the kind, the axes and the bytes of each
    collective.
    """
    compiled = sd.jit(f).lower(*args).compile()
    return [(c.kind, c.axes, c.nbytes) for c in compiled.collectives()]


def test_gradients_communicate_only_sums_of_replicated_arguments(wide: sd.Mesh) -> None:
    def put(shape: tuple[int, ...], *spec: Any) -> Any:
        return sd.device_put(np.ones(shape, "f"), sd.NamedSharding(wide, P(*spec)))

    def cut(f: Any, ins: Any, out: Any) -> Any:
        return sd.shard_map(f, mesh=wide, in_specs=ins, out_specs=out)

    def by_x(f: Any) -> Any:
        return sd.grad(lambda x: (f(x) ** 2).sum())

    x, w = put((64, 32), AXIS), put((32, 32))
    both = put((64, 32), AXIS, "t")
    # The cases are an axis that the specs do not mention, a sum, and replicated weights.
    assert sent(by_x(cut(snp.sin, (P(AXIS),), P(AXIS))), x) == []
    summed = cut(lambda x: lax.psum(snp.sin(x), "t"), (P(AXIS, "t"),), P(AXIS))
    assert sent(by_x(summed), both) == [("all-reduce", ("t",), 1024)]
    dense = cut(lambda x, w: snp.tanh(x @ w), (P(AXIS), P()), P(AXIS))
    by_w = sd.grad(lambda w, x: (dense(x, w) ** 2).sum())
    assert sent(by_w, w, x) == [("all-reduce", (AXIS,), 4096)]
    rows = cut(lambda x, w: lax.psum(x @ w, AXIS), (P(None, AXIS), P(AXIS)), P())
    a, b = put((16, 64), None, AXIS), put((64, 12), AXIS)
    by_both = sd.grad(lambda x, w: (rows(x, w) ** 2).sum(), (0, 1))
    assert sent(by_both, a, b) == [("all-reduce", (AXIS,), 768)]


def test_forward_derivatives_of_replicated_values_do_not_communicate() -> None:
    mesh = sd.make_mesh((COUNT,), (AXIS,))

    def body(w: Any, x: Any) -> Any:
        f = sd.custom_jvp(lambda w: w * x)
        f.defjvp(lambda primals, tangents: (f(*primals), x * tangents[0]))
        moved = sd.jvp(lambda w: w * w * x + f(w), (w,), (1.0,))[1]
        return moved + sd.jacfwd(lambda w: snp.sin(w) * x)(w) + sd.hessian(lambda w: w * w * x)(w)

    cut = sd.shard_map(body, mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=P(AXIS))
    assert sent(cut, np.float32(2), np.asarray(X, "f")) == []
    agree(interpret_traced(cut, 2.0, X), (4 + 1 + np.cos(2) + 2) * X)
