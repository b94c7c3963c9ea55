"""Nested containers under the names of `jax.tree_util`."""

import functools
import pickle
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import shardir
from shardir import flatten_util, tree_util
from shardir.frontend.errors import StructureError
from tests.error_assertions import error_line

Point = namedtuple("Point", ["x", "y"])


@tree_util.register_pytree_node_class
class Pair:
    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right

    def tree_flatten(self) -> Any:
        return (self.left, self.right), None

    @classmethod
    def tree_unflatten(cls, rest: Any, children: Any) -> "Pair":
        return cls(*children)


@tree_util.register_pytree_with_keys_class
class Keyed(Pair):
    def tree_flatten_with_keys(self) -> Any:
        pairs = ((tree_util.GetAttrKey("left"), self.left), ("right", self.right))
        return pairs, None


@tree_util.register_static
@dataclass(frozen=True)
class Constant:
    value: int


TREE = {"a": [1, (2, Point(3, 4))], "b": None, "c": Pair(5, Keyed(6, 7))}


def test_paths_of_leaves() -> None:
    pairs = tree_util.tree_leaves_with_path(TREE)
    assert [(tree_util.keystr(path), leaf) for path, leaf in pairs] == [
        ("['a'][0]", 1),
        ("['a'][1][0]", 2),
        ("['a'][1][1].x", 3),
        ("['a'][1][1].y", 4),
        ("['c'][<flat index 0>]", 5),
        ("['c'][<flat index 1>].left", 6),
        ("['c'][<flat index 1>]right", 7),
    ]
    assert tree_util.keystr(pairs[2][0], simple=True, separator="/") == "a/1/1/x"
    assert pairs[0][0] == (tree_util.DictKey("a"), tree_util.SequenceKey(0))


def test_tree_map_with_path() -> None:
    made = tree_util.tree_map_with_path(
        lambda path, x, y: (tree_util.keystr(path), x + y), {"a": [1, 2]}, {"a": [10, 20]}
    )
    assert made == {"a": [("['a'][0]", 11), ("['a'][1]", 22)]}


def test_is_leaf_may_use_the_path() -> None:
    nested = {"a": [1, (2, 3)], "b": (4, [5])}

    def closed(path: Any, x: Any) -> bool:
        return tree_util.keystr(path) in ("['a'][1]", "['b']")

    pairs, structure = tree_util.tree_flatten_with_path(nested, closed, is_leaf_takes_path=True)
    assert [leaf for _, leaf in pairs] == [1, (2, 3), (4, [5])]
    assert tree_util.tree_unflatten(structure, "xyz") == {"a": ["x", "y"], "b": "z"}
    sizes = tree_util.tree_map_with_path(
        lambda path, x: len(path), nested, is_leaf=closed, is_leaf_takes_path=True
    )
    assert sizes == {"a": [2, 2], "b": 1}


def test_fields_may_be_static_or_dropped() -> None:
    @dataclass
    class Layer:
        weight: Any
        width: int = shardir.tree.static(default=3)

    @dataclass
    class Cached:
        weight: Any
        seen: list[Any] = field(default_factory=list)

    shardir.tree.register_dataclass(Layer)
    assert shardir.tree.leaves(Layer(1.0)) == [1.0]
    assert shardir.tree.structure(Layer(1.0)) != shardir.tree.structure(Layer(1.0, 4))
    shardir.tree.register_dataclass(Cached, ["weight"], [], ["seen"])
    assert shardir.tree.map(lambda x: x + 1, Cached(1.0, [2])) == Cached(2.0, [])


def test_flatten_and_unflatten_are_inverse() -> None:
    leaves, treedef = tree_util.tree_flatten(TREE)
    assert leaves == [1, 2, 3, 4, 5, 6, 7]
    again = tree_util.tree_unflatten(treedef, leaves)
    assert tree_util.tree_structure(again) == treedef
    with pytest.raises(shardir.ShardirError, match="has 7 leaves, got 2"):
        tree_util.tree_unflatten(treedef, [1, 2])
    with pytest.raises(shardir.ShardirError, match=r"takes what tree\.structure returns, got 3"):
        tree_util.tree_unflatten(3, [1])  # type: ignore[arg-type]


def test_static_containers_are_part_of_the_structure() -> None:
    assert tree_util.tree_leaves([Constant(1), 2]) == [2]
    one, two = (tree_util.tree_structure(Constant(n)) for n in (1, 2))
    assert one != two
    assert one == tree_util.tree_structure(Constant(1))


def test_tree_reduce() -> None:
    assert tree_util.tree_reduce(lambda a, b: a - b, [1, 2, (3,)]) == -4
    assert tree_util.tree_reduce(lambda a, b: a + b, [[1], [2]], 5) == 8
    words = list("abcde")
    assert tree_util.tree_reduce_associative(lambda a, b: f"({a}{b})", words) == "(((ab)(cd))e)"
    assert tree_util.tree_reduce_associative(lambda a, b: a + b, [], identity=0) == 0
    with pytest.raises(shardir.ShardirError, match="there are no leaves to combine"):
        tree_util.tree_reduce(lambda a, b: a, [])


def test_flatten_one_level() -> None:
    children, _ = tree_util.flatten_one_level({"b": [1, 2], "a": 3})
    assert list(children) == [3, [1, 2]]
    pairs, _ = tree_util.flatten_one_level_with_keys(Keyed([1], 2))
    assert pairs == [(tree_util.GetAttrKey("left"), [1]), ("right", 2)]
    with pytest.raises(shardir.ShardirError, match=r"^1 of type int is not a container\n"):
        tree_util.flatten_one_level(1)
    assert tree_util.is_tree_node(None)
    assert tree_util.is_tree_node(())
    assert not tree_util.is_tree_node(1)
    assert tree_util.all_leaves([1, "a"])
    assert not tree_util.all_leaves([1, [2]])


def test_compose_structures() -> None:
    treedef = tree_util.tree_structure(([1, 2], 3))
    first, second = tree_util.treedef_children(treedef)
    assert tree_util.treedef_is_leaf(second)
    assert not tree_util.treedef_is_leaf(first)
    assert tree_util.treedef_tuple([first, second]) == treedef


def test_transposing_and_broadcasting() -> None:
    outer, inner = tree_util.tree_structure([0, 0]), tree_util.tree_structure({"a": 0, "b": 0})
    given = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    want = {"a": [1, 3], "b": [2, 4]}
    assert tree_util.tree_transpose(outer, inner, given) == want
    assert tree_util.tree_transpose(outer, None, given) == want
    assert tree_util.tree_broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0}) == {
        "a": [1, 1],
        "b": 2,
    }
    with pytest.raises(shardir.ShardirError, match="is not a prefix of"):
        tree_util.tree_broadcast([1, 2], {"a": 1})


def test_partial_functions_are_containers() -> None:
    partial = tree_util.Partial(np.add, np.ones(3, np.float32))
    assert len(tree_util.tree_leaves(partial)) == 1
    result = shardir.jit(lambda f, x: f.args[0] + x)(partial, np.ones(3, np.float32))
    assert result.tolist() == [2, 2, 2]
    assert partial(1).tolist() == [2, 2, 2]


def test_ravel_pytree() -> None:
    tree = OrderedDict(a=np.arange(3, dtype=np.int32), b=[np.ones((2, 2), np.float32), 1.5])
    flat, unravel = flatten_util.ravel_pytree(tree)
    assert flat.tolist() == [0, 1, 2, 1, 1, 1, 1, 1.5]
    again = unravel(flat)
    assert [x.dtype.name for x in shardir.tree.leaves(again)] == ["int32", "float32", "float32"]
    assert shardir.tree.structure(again) == shardir.tree.structure(tree)
    with pytest.raises(
        shardir.ShardirError, match=r"the vector to unravel must have the shape \(8,\), got \(7,\)"
    ):
        unravel(flat[1:])
    assert flatten_util.ravel_pytree([])[0].shape == (0,)


WRONG: Any = "a"


class Wrong:
    def __init__(self, flattened: Any) -> None:
        self.flattened = flattened


tree_util.register_pytree_node(Wrong, lambda x: x.flattened, lambda rest, children: Wrong(children))


@pytest.mark.parametrize(
    ("flattened", "message"),
    [
        (7, "must return (children, auxiliary data), it returned 7"),
        ((1, 2, 3), "must return (children, auxiliary data), it returned (1, 2, 3)"),
        ((7, 7), "must return (children, auxiliary data) with an iterable of children, it "
         "returned (7, 7)"),
    ],
)  # fmt: skip
def test_wrong_results_of_flatten_functions_are_errors(flattened: Any, message: str) -> None:
    expected = f"the function that flattens Wrong {message}"
    tree = {"a": [Pair(1, Wrong(flattened))]}
    assert error_line(StructureError, lambda: tree_util.tree_flatten(tree)) == expected


def test_structures_print_as_in_jax() -> None:
    tree = {"b": Pair(1, [2, ()]), "a": (Point(3, None),), "c": OrderedDict(z=4)}
    structure = tree_util.tree_structure(tree)
    assert str(structure) == (
        "PyTreeDef({'a': (CustomNode(namedtuple[Point], [*, None]),), "
        "'b': CustomNode(Pair[None], [*, [*, ()]]), 'c': CustomNode(OrderedDict[('z',)], [*])})"
    )
    assert str(tree_util.tree_structure(1)) == "PyTreeDef(*)"
    assert pickle.loads(pickle.dumps(tree_util.tree_structure([1]))) == (
        tree_util.tree_structure([1])
    )


def test_structures_are_walked_and_composed() -> None:
    leaves, structure = tree_util.tree_flatten({"b": 1, "a": [2, 3]})
    sums = structure.walk(lambda parts, data: (data, sum_parts(parts)), lambda x: x, leaves)
    assert sums == (["a", "b"], 6)
    assert structure.node_data() == (dict, ["a", "b"])
    assert tree_util.tree_structure(0).node_data() is None
    pair = tree_util.tree_structure((0, 0))
    assert pair.compose(structure) == tree_util.tree_structure(({"a": [0, 0], "b": 0},) * 2)


def test_static_data_of_containers_is_that_of_jax() -> None:
    structure = tree_util.tree_structure
    assert structure(Point(1, 2)).node_data() == (Point, None)
    ordered = structure(OrderedDict(b=1, a=2))
    assert ordered.node_data() == (OrderedDict, ("b", "a"))
    assert str(ordered) == "PyTreeDef(CustomNode(OrderedDict[('b', 'a')], [*, *]))"
    assert structure(defaultdict(list, a=1)).node_data() == (defaultdict, (list, ("a",)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.unflatten([1]), "PyTreeDef.unflatten got 1 leaf for a structure of 2"),
        (lambda x: x.unflatten(None), "leaves of PyTreeDef.unflatten are several, got None"),
        (lambda x: x.compose("a"), "PyTreeDef.compose takes what tree.structure returns, got 'a'"),
        (
            lambda x: tree_util.PyTreeDef(WRONG),
            "PyTreeDef takes a structure of optree, got 'a'; use "
            "tree.structure(x) for the structure of x",
        ),
        (
            lambda x: x.flatten_up_to([1, 2]),
            "PyTreeDef.flatten_up_to takes a tree whose outer "
            "containers are those of (*, *), got [1, 2]",
        ),
        (lambda x: x.walk(3, None, [1, 2]), "PyTreeDef.walk takes a function, got 3"),
        (lambda x: x.walk(len, 4, [1, 2]), "PyTreeDef.walk takes a function, got 4"),
        (lambda x: x.walk(len, None, [1]), "PyTreeDef.walk got 1 leaf for a structure of 2"),
    ],
)
def test_wrong_arguments_of_structures_are_errors(call: Any, message: str) -> None:
    structure = tree_util.tree_structure((1, 2))
    assert error_line(StructureError, lambda: call(structure)) == message


def sum_parts(parts: Any) -> Any:
    return sum(part[1] if isinstance(part, tuple) else part for part in parts)


def test_functions_of_partials_and_ravelled_trees_are_equal() -> None:
    inner = functools.partial(print, 1)
    one, other = tree_util.Partial(inner, 2), tree_util.Partial(inner, 3)
    assert one.func == other.func == inner
    assert hash(one.func) == hash(other.func)
    (_, first), (_, second) = (flatten_util.ravel_pytree([np.ones(2), 1]) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    keys = tree_util.FlattenedIndexKey(1), tree_util.SequenceKey(1)
    assert hash(keys[0]) != hash(keys[1])


def test_classes_of_containers_are_known() -> None:
    assert all(map(tree_util.is_tree_node, (list, dict, type(None), Pair, Point)))
    assert not any(map(tree_util.is_tree_node, (int, str, Any, 3)))
