"""The order of the keys of dictionaries: sorted in every pytree that is made, as in JAX."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pytest

import shardir
from shardir import tree, tree_util
from shardir.frontend.errors import StructureError
from shardir.frontend.pytree.dict_order import sort_keys


class Pair(NamedTuple):
    """A named tuple of any contents."""

    first: object
    second: object


@tree_util.register_pytree_node_class
@jax.tree_util.register_pytree_node_class
class Box:
    """A registered container."""

    def __init__(self, inside: object) -> None:
        self.inside = inside

    def tree_flatten(self) -> tuple[tuple[object], None]:
        """Return the contents."""
        return (self.inside,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[object]) -> "Box":
        """Return a box with these contents."""
        return cls(*children)

    def __repr__(self) -> str:
        return f"Box({self.inside!r})"


TREES: list[object] = [
    {"b": 1, "a": 2},
    [{"b": 1, "a": {"d": 2, "c": (3, [4], None)}}, 5],
    {2: 1, 1: 2, 1.5: 3},
    {True: 1, 0: 2},
    {None: 1},
    {(2, 1): 1, (1, 2): 2},
    {},
    defaultdict(list, {"b": 1, "a": {"d": 2, "c": 3}}),
    OrderedDict(b=1, a={"d": 2, "c": 3}),
    Pair({"b": 1, "a": 2}, 3),
    Box({"b": 1, "a": Box({"d": 2, "c": 3})}),
    Box([1, 2]),
]


@pytest.mark.parametrize("given", TREES, ids=repr)
def test_made_pytrees_have_the_order_of_jax(given: object) -> None:
    leaves, structure = tree.flatten(given)
    others, wanted = jax.tree.flatten(given)
    assert leaves == others
    tens = [10 * x for x in leaves]
    expected = repr(jax.tree.unflatten(wanted, tens))
    assert repr(tree.unflatten(structure, tens)) == expected
    assert repr(structure.unflatten(tens)) == expected
    assert repr(sort_keys(structure.spec).unflatten(tens)) == expected
    assert sort_keys(structure.spec) == structure.spec
    assert repr(tree.map(lambda x: 10 * x, given)) == expected
    assert repr(tree.map(lambda x, y: x + y, given, tree.unflatten(structure, tens))) == repr(
        jax.tree.map(lambda x: 11 * x, given)
    )
    assert repr(tree_util.tree_map_with_path(lambda _, x: 10 * x, given)) == expected
    assert repr(tree.broadcast(10, given)) == repr(jax.tree.map(lambda _: 10, given))
    outer = tree.structure([0, 0])
    assert repr(tree.transpose(outer, structure, [given, given])) == repr(
        jax.tree.map(lambda x: [x, x], given)
    )


def test_structures_of_equal_keys_are_equal_but_keep_their_keys() -> None:
    """Keys that are equal, 1 and True, are not exchanged between structures."""
    first, second = tree.structure({1: 0, 0: 0}), tree.structure({True: 0, False: 0})
    assert first == second
    assert hash(first) == hash(second)
    assert repr(first.unflatten([1, 2])) == "{0: 1, 1: 2}"
    assert repr(second.unflatten([1, 2])) == "{False: 1, True: 2}"
    assert tree.structure({"b": 1, "a": 2}) == tree.structure({"a": 1, "b": 2})
    assert tree.structure(OrderedDict(b=1, a=2)) != tree.structure(OrderedDict(a=1, b=2))


X = np.arange(3.0, dtype="float32")


@pytest.mark.parametrize(
    "transform",
    [
        shardir.jit,
        lambda f: shardir.vmap(f, in_axes=({"b": 0, "a": 0},)),
        lambda f: shardir.checkpoint(f),
        lambda f: lambda d: shardir.vjp(f, d)[0],
        lambda f: lambda d: shardir.lax.cond(True, f, f, d),
        lambda f: shardir.jit(f, donate_argnums=0),
    ],
)
def test_functions_see_and_return_sorted_keys(
    transform: Callable[[Callable[..., object]], Callable[..., dict[str, object]]],
) -> None:
    seen: list[list[str]] = []

    def f(given: dict[str, object]) -> dict[str, object]:
        seen.append(list(given))
        return {"z": given["b"], "y": given["a"]}

    run = transform(f)
    for _ in range(4):  # the later calls of `jit` run without Python code
        out = run({"b": shardir.numpy.asarray(X), "a": shardir.numpy.asarray(2 * X)})
        assert list(out) == ["y", "z"]
        np.testing.assert_array_equal(np.asarray(out["z"]), X)
    assert {*map(tuple, seen)} == {("a", "b")}


def test_gradients_and_results_do_not_depend_on_the_order_of_the_first_call() -> None:
    def loss(given: dict[str, shardir.Array]) -> shardir.Array:
        return (given["b"] * given["a"] ** 2).sum()

    grad = shardir.jit(shardir.grad(loss))
    for given in ({"b": X, "a": X + 1}, {"a": X + 1, "b": X}):
        out = grad(given)
        assert list(out) == ["a", "b"]
        np.testing.assert_array_equal(np.asarray(out["b"]), (X + 1) ** 2)


def test_keyword_arguments_of_functions_are_sorted() -> None:
    def f(**options: object) -> list[str]:
        names.append(list(options))
        return options["b"]  # type: ignore[return-value]

    names: list[list[str]] = []
    shardir.jit(f)(b=X, a=X)
    assert names == [["a", "b"]]


@pytest.mark.parametrize(
    "given",
    [{1: X, "a": X}, {None: X, 2: X}, Box({1: X, "a": X}), [defaultdict(None, {1: X, "a": X})]],
    ids=["dict", "None", "registered", "defaultdict"],
)
@pytest.mark.parametrize(
    "use", [tree.flatten, tree.leaves, shardir.jit(lambda x: x), lambda x: tree.map(str, x)]
)
def test_keys_that_cannot_be_sorted_are_refused(
    given: object, use: Callable[[object], object]
) -> None:
    """JAX refuses them as well; the order of leaves would depend on the program."""
    with pytest.raises((TypeError, ValueError), match=r"Comparator raised|not supported"):
        jax.tree.leaves(given)
    with pytest.raises(
        StructureError,
        match=r"the keys \[.*\] of a dictionary cannot be sorted, which determines the order of "
        "its leaves; use keys of one type that can be compared, or an OrderedDict",
    ):
        use(given)


def test_an_ordered_dictionary_may_have_any_keys() -> None:
    given = OrderedDict({1: X, "a": X})
    assert list(shardir.jit(lambda x: x)(given)) == [1, "a"]


def test_a_pytree_without_leaves_has_no_inner_structure_to_transpose() -> None:
    with pytest.raises(
        StructureError, match=r"expected \[\] with the same containers at each leaf"
    ):
        tree.transpose(tree.structure([]), None, [])
    inner = tree.structure({"a": 0})
    assert tree.transpose(tree.structure([]), inner, []) == {"a": []}
