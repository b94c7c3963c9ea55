"""Errors of functions with wrong parameters or results: they name the function and its
transformation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.tree_util
from shardir.errors import DifferentiateError, ShardirError
from shardir.frontend.errors import (
    ArgumentError,
    ControlFlowError,
    NotAnArrayError,
    StructureError,
)
from tests.error_assertions import assert_raises_exactly

sd: Any = shardir
lax: Any = shardir.lax
snp: Any = shardir.numpy
tree: Any = shardir.tree
tree_util: Any = shardir.tree_util

X = np.ones(3, np.float32)
KIND = sd.ShapeDtypeStruct((3,), "float32")
MESH = sd.make_mesh((1,), ("x",))


def solve(function: Any, x: Any) -> Any:
    return x


def same(x: Any) -> Any:
    return x


def none() -> Any:
    return X


def of_jvp(*rules: Any) -> Any:
    function = sd.custom_jvp(lambda x: x)
    function.defjvps(*rules)
    return sd.jvp(function, (X,), (X,))


def of_vjp(ahead: Any, back: Any) -> Any:
    function = sd.custom_vjp(lambda x: x)
    function.defvjp(ahead, back)
    return sd.grad(lambda x: function(x).sum())(X)


def of_root(**wrong: Any) -> Any:
    given: dict[str, Any] = {"f": same, "solve": solve, "tangent_solve": solve, **wrong}
    return sd.grad(
        lambda a: lax.custom_root(
            (lambda x: x - a) if given["f"] is same else given["f"],
            X,
            given["solve"],
            given["tangent_solve"],
        ).sum()
    )(2.0)


def of_checkpoint(function: Any = same, **options: Any) -> Any:
    return sd.grad(lambda x: sd.checkpoint(function, **options)(x).sum())(X)


TOO_MANY = "too many positional arguments"
CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (lambda: of_root(f=none), ArgumentError, f"f of custom_root takes (): {TOO_MANY}"),
    (lambda: of_root(solve=none), ArgumentError, f"solve of custom_root takes (): {TOO_MANY}"),
    (
        lambda: of_root(tangent_solve=none),
        ArgumentError,
        f"tangent_solve of custom_root takes (): {TOO_MANY}",
    ),
    (
        lambda: of_root(tangent_solve=lambda f, y: "a"),
        NotAnArrayError,
        "the result of tangent_solve of custom_root is 'a' of type str, which is not an array",
    ),
    (
        lambda: lax.custom_root(same, X, lambda f, x: "a", solve),
        NotAnArrayError,
        "the result of solve of custom_root is 'a' of type str, which is not an array",
    ),
    (
        lambda: lax.custom_root(same, X, lambda f, x: 5, solve, has_aux=True),
        ArgumentError,
        "solve of custom_root with has_aux must return (solution, aux); it returned 5",
    ),
    (
        lambda: lax.custom_linear_solve(none, X, solve),
        ArgumentError,
        f"matvec of custom_linear_solve takes (): {TOO_MANY}",
    ),
    (
        lambda: sd.jit(lambda x: lax.custom_linear_solve(snp.sum, x, solve))(X),
        ArgumentError,
        "the result of matvec of custom_linear_solve is f32[]; return the shape of its argument, "
        "(3,)",
    ),
    (
        lambda: lax.custom_linear_solve(same, X, lambda f, b: snp.sum(b)),
        ArgumentError,
        "the solution of solve of custom_linear_solve is f32[]; return the shape of its argument, "
        "(3,)",
    ),
    (
        lambda: lax.custom_root(same, X, lambda f, x: (x, x), solve),
        ArgumentError,
        "the solution of solve of custom_root has the containers (*, *); return those of its "
        "argument, *",
    ),
    (
        lambda: lax.custom_linear_solve(same, X, none),
        ArgumentError,
        f"solve of custom_linear_solve takes (): {TOO_MANY}",
    ),
    (
        lambda: lax.custom_linear_solve(same, X, solve, 7),
        ArgumentError,
        "transpose_solve of custom_linear_solve is 7, which is not a function",
    ),
    (
        lambda: sd.pure_callback(none, KIND, X),
        ArgumentError,
        f"none takes (): {TOO_MANY}",
    ),
    (
        lambda: sd.jit(lambda x: sd.pure_callback(none, KIND, x))(X),
        ArgumentError,
        f"none takes (): {TOO_MANY}",
    ),
    (
        lambda: sd.io_callback(none, KIND, X),
        ArgumentError,
        f"none takes (): {TOO_MANY}",
    ),
    (lambda: sd.debug.callback(none, X), ArgumentError, f"none takes (): {TOO_MANY}"),
    (lambda: sd.jacfwd(none)(X), ArgumentError, f"none takes (): {TOO_MANY}"),
    (lambda: sd.jacrev(none)(X), ArgumentError, f"none takes (): {TOO_MANY}"),
    (lambda: sd.hessian(none)(X), ArgumentError, f"none takes (): {TOO_MANY}"),
    (lambda: of_checkpoint(none), ArgumentError, f"none takes (): {TOO_MANY}"),
    (
        lambda: of_checkpoint(lambda x: snp.sin(snp.sin(x)), policy=none),
        ArgumentError,
        f"the policy of checkpoint takes (): {TOO_MANY}",
    ),
    (
        lambda: of_checkpoint(lambda x: snp.sin(snp.sin(x)), policy=lambda *a, **k: X),
        ArgumentError,
        "what the policy of checkpoint returns is True or False, got float32[3]",
    ),
    (lambda: of_jvp(none), ArgumentError, f"rule 0 of lambda takes (): {TOO_MANY}"),
    (
        lambda: of_jvp(7),
        ArgumentError,
        "rule 0 of defjvps of lambda is 7, which is not a function",
    ),
    (
        lambda: of_jvp(None, None),
        DifferentiateError,
        "defjvps of lambda was given 2 rules for 1 argument; give one for each, or None",
    ),
    (
        lambda: of_vjp(none, lambda kept, c: (c,)),
        ArgumentError,
        f"the forward rule of lambda takes (): {TOO_MANY}",
    ),
    (
        lambda: of_vjp(lambda x: (x, None), none),
        ArgumentError,
        f"the backward rule of lambda takes (): {TOO_MANY}",
    ),
    (
        lambda: sd.custom_gradient(lambda x: 5)(X),
        DifferentiateError,
        "custom_gradient of lambda must return (results, rule); it returned 5",
    ),
    (
        lambda: sd.custom_gradient(lambda x: (5, 7))(X),
        DifferentiateError,
        "custom_gradient of lambda must return (results, rule); it returned (5, 7)",
    ),
    (
        lambda: sd.grad(lambda x: sd.custom_gradient(lambda x: (x, none))(x).sum())(X),
        ArgumentError,
        f"the rule of lambda takes (): {TOO_MANY}",
    ),
    (
        lambda: lax.associative_scan(lambda a, b: snp.ones((5, 5)), X),
        ControlFlowError,
        "the function of associative_scan must keep shapes, it returned (5, 5) for two (1,)",
    ),
    (
        lambda: lax.associative_scan(lambda a, b: (a, b), X),
        ControlFlowError,
        "the function of associative_scan must return containers like its carry *, got (*, *)",
    ),
    (
        lambda: snp.apply_over_axes(none, snp.ones((2, 3)), [0]),
        ArgumentError,
        f"the function of apply_over_axes takes (): {TOO_MANY}",
    ),
    (
        lambda: snp.mask_indices(3, none),
        ArgumentError,
        f"mask_func of mask_indices takes (): {TOO_MANY}",
    ),
    (
        lambda: snp.fromfunction(none, (3,)),
        ArgumentError,
        f"the function of fromfunction takes (): {TOO_MANY}",
    ),
    (
        lambda: snp.vectorize(none)(X),
        ArgumentError,
        f"the function of vectorize takes (): {TOO_MANY}",
    ),
    (
        lambda: snp.vectorize(none, signature="(n)->()")(X),
        ArgumentError,
        f"the function of vectorize takes (): {TOO_MANY}",
    ),
    (
        lambda: snp.ones(3).at[0].apply(none),
        ArgumentError,
        f"the function of at[...].apply takes (): {TOO_MANY}",
    ),
    (
        lambda: sd.make_array_from_callback((3,), sd.NamedSharding(MESH, sd.P("x")), none),
        ArgumentError,
        f"data_callback of make_array_from_callback takes (): {TOO_MANY}",
    ),
    (lambda: sd.named_call(7), StructureError, "named_call takes a function, got 7"),
    (lambda: sd.closure_convert(7, X), StructureError, "closure_convert takes a function, got 7"),
    (
        lambda: sd.jit(lambda x: sd.closure_convert(none, x)[0](x))(X),
        ArgumentError,
        f"none takes (): {TOO_MANY}",
    ),
    (
        lambda: sd.jit(lambda x: sd.closure_convert(same, x[:1])[0](x))(X),
        ArgumentError,
        "argument 0 of same, which closure_convert converted for f32[1], is f32[3]",
    ),
    (lambda: tree.map(none, [X]), ArgumentError, f"the function of tree.map takes (): {TOO_MANY}"),
    (
        lambda: tree.map(same, [X], [X]),
        ArgumentError,
        f"the function of tree.map takes (x): {TOO_MANY}",
    ),
    (
        lambda: tree.reduce(same, [X, X]),
        ArgumentError,
        f"the function of tree.reduce takes (x): {TOO_MANY}",
    ),
    (
        lambda: tree.reduce_associative(same, [X, X]),
        ArgumentError,
        f"the function of tree.reduce_associative takes (x): {TOO_MANY}",
    ),
    (
        lambda: tree.map_with_path(same, [X]),
        ArgumentError,
        f"the function of tree.map_with_path takes (x): {TOO_MANY}",
    ),
    (lambda: tree.leaves([X], is_leaf=none), ArgumentError, f"is_leaf takes (): {TOO_MANY}"),
    (
        lambda: tree.leaves([X], is_leaf=lambda x: "a"),
        StructureError,
        "is_leaf returns True or False, it returned 'a'",
    ),
    (
        lambda: tree.map(same, [X], is_leaf=lambda x: ()),
        StructureError,
        "is_leaf returns True or False, it returned ()",
    ),
    (
        lambda: tree.broadcast(1, [X], is_leaf=lambda x: ()),
        StructureError,
        "is_leaf returns True or False, it returned ()",
    ),
    (
        lambda: tree.leaves_with_path([X], is_leaf=lambda x: snp.ones(3)),
        ArgumentError,
        "what is_leaf returns is True or False, got f32[3]",
    ),
    (
        lambda: tree.leaves_with_path([X], is_leaf=lambda p, x: "a", is_leaf_takes_path=True),
        StructureError,
        "is_leaf returns True or False, it returned 'a'",
    ),
    (
        lambda: tree_util.treedef_children(3),
        StructureError,
        "treedef_children takes what tree.structure returns, got 3",
    ),
    (
        lambda: tree_util.treedef_is_leaf([]),
        StructureError,
        "treedef_is_leaf takes what tree.structure returns, got []",
    ),
    (
        lambda: tree_util.treedef_tuple([3]),
        StructureError,
        "treedef_tuple takes what tree.structure returns, got 3",
    ),
    (
        lambda: tree_util.treedef_tuple(3),
        StructureError,
        "elements of treedef_tuple are several, got 3",
    ),
    (
        lambda: tree_util.tree_unflatten(tree.structure([1]), 3),
        StructureError,
        "leaves of tree_unflatten are several, got 3",
    ),
    (lambda: tree_util.all_leaves(3), StructureError, "elements are several, got 3"),
    (
        lambda: tree.transpose(None, None, [X]),
        StructureError,
        "tree.transpose takes what tree.structure returns, got None",
    ),
    (lambda: tree_util.keystr(3), StructureError, "keys are several, got 3"),
    (
        lambda: tree_util.keystr((), separator=3),
        ArgumentError,
        "separator of keystr is text, got 3",
    ),
    (lambda: tree_util.Partial(3), StructureError, "Partial takes a function, got 3"),
    (
        lambda: tree_util.register_dataclass(3),
        StructureError,
        "register_dataclass takes a class, got 3",
    ),
    (
        lambda: tree_util.register_dataclass(int, ["a"], 3),
        StructureError,
        "meta_fields of int are names of fields, got 3",
    ),
    (
        lambda: tree_util.register_static(3),
        StructureError,
        "register_static takes a class, got 3",
    ),
    (
        lambda: tree_util.register_pytree_with_keys_class(int),
        StructureError,
        "tree_flatten_with_keys of int must be a function, got None",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[case[2][:60] for case in CASES])
def test_an_invalid_function_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)


def broken(*args: Any) -> Any:
    raise TypeError("the user's own")


OWN: list[Callable[[], Any]] = [
    lambda: sd.jacfwd(broken)(X),
    lambda: of_checkpoint(broken),
    lambda: of_vjp(broken, same),
    lambda: lax.custom_root(same, X, broken, solve),
    lambda: tree.map(broken, [X]),
    lambda: tree.reduce(broken, [X, X]),
    lambda: tree.leaves([X], is_leaf=broken),
    lambda: snp.mask_indices(3, broken),
]


@pytest.mark.parametrize("call", OWN)
def test_errors_of_user_functions_propagate_unchanged(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"^the user's own") as caught:
        call()
    assert str(caught.value) == "the user's own"
    assert not isinstance(caught.value, ShardirError)
