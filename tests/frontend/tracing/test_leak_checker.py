"""The setting `check_tracer_leaks`: traced values that outlive their trace."""

import gc

import pytest

import shardir
from shardir import lax, numpy as snp
from shardir.frontend.errors import LeakedTracerError
from shardir.frontend.pytree_types import PyTree


@pytest.fixture(autouse=True)
def _search_new_objects_only() -> None:
    """Hide the objects of other tests from the searches of this one, which would take minutes."""
    gc.freeze()


def test_traced_values_that_outlive_a_jitted_function_are_an_error() -> None:
    kept = []

    @shardir.jit
    def f(x: PyTree) -> PyTree:
        kept.append(x + 1)
        return x

    assert f(2) == 2
    with pytest.raises(LeakedTracerError) as leaked, shardir.checking_leaks():
        f(3)
    lines = str(leaked.value).splitlines()
    assert lines[0] == (
        "Leaked trace: f has ended, and a traced i32[] that belongs to it is still referenced; "
        "return it from there instead of keeping it in a variable, list or attribute"
    )
    assert lines[5] == "it was created here:"
    assert lines[8].endswith("| kept.append(x + 1)")


def test_traced_values_that_outlive_a_nested_function_are_an_error() -> None:
    def keep(x: PyTree, kept: list[PyTree]) -> PyTree:
        kept.append(x)
        return snp.sin(x)

    def in_scan(x: PyTree) -> PyTree:
        kept: list[PyTree] = []
        return lax.scan(lambda c, _: (keep(c, kept), None), x, None, length=3)

    def in_jit(x: PyTree) -> PyTree:
        kept: list[PyTree] = []
        return shardir.jit(lambda x: keep(x, kept))(x)

    for fun, name in ((in_scan, "the body of scan"), (in_jit, "lambda")):
        message = f"Leaked trace: {name} has ended"
        with pytest.raises(LeakedTracerError, match=message), shardir.checking_leaks():
            shardir.jit(fun)(1.0)


def test_traced_values_of_an_inlined_function_are_refused_outside_of_it() -> None:
    kept: list[PyTree] = []

    @shardir.jit
    def f(x: PyTree) -> PyTree:
        shardir.jit(lambda: kept.append(x + 1))()
        return x + kept[0]

    with pytest.raises(LeakedTracerError) as leaked:
        f(2.0)
    assert str(leaked.value).splitlines()[0] == (
        "a traced f32[] was used outside of the trace it belongs to: lambda does not enclose this "
        "line; return it from there instead of keeping it in a variable, list or attribute"
    )


def test_functions_that_keep_no_traced_value_pass_the_check() -> None:
    @shardir.custom_jvp
    def double(x: PyTree) -> PyTree:
        return x * 2

    double.defjvp(lambda primals, tangents: (double(primals[0]), tangents[0] * 2))

    @shardir.custom_vjp
    def triple(x: PyTree) -> PyTree:
        return x * 3

    triple.defvjp(lambda x: (triple(x), None), lambda _, g: (g * 3,))

    @shardir.jit
    def f(x: PyTree) -> PyTree:
        x = double(triple(x))
        x, _ = lax.scan(lambda c, _: (shardir.jit(snp.sin)(c), None), x, None, length=2)
        return shardir.checkpoint(lambda x: lax.cond(x > 0, snp.sin, snp.cos, x))(x)

    plain = shardir.grad(f)(0.1)
    with shardir.config(check_tracer_leaks=True):
        assert shardir.grad(f)(0.1) == plain
