"""Flattening and unflattening of nested containers."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.prefix import broadcast_prefix


class Layer(NamedTuple):
    w: object
    b: object


@tree.register_dataclass
@dataclass(frozen=True)
class Model:
    layers: list[Layer]
    scale: object = None


@dataclass
class Cell:
    weight: object
    size: int


tree.register_dataclass(Cell, data_fields=["weight"], meta_fields=["size"])


class Pair:
    def __init__(self, x: object, y: object) -> None:
        self.x, self.y = x, y


tree.register_node(Pair, lambda pair: ((pair.x, pair.y), None), lambda _, both: Pair(*both))


def test_lists_tuples_dictionaries_and_none_are_containers() -> None:
    nested = {"b": [1, (2, None)], "a": Layer(3, 4)}
    assert tree.leaves(nested) == [3, 4, 1, 2]
    leaves, structure = tree.flatten(nested)
    assert tree.unflatten(structure, leaves) == nested


def test_a_registered_dataclass_is_a_container() -> None:
    model = Model([Layer(1, 2)], 3)
    assert tree.map(lambda x: x * 10, model) == Model([Layer(10, 20)], 30)


def test_meta_fields_belong_to_the_structure() -> None:
    assert tree.leaves(Cell(1, 5)) == [1]
    assert tree.map(lambda x: x + 1, Cell(1, 5)) == Cell(2, 5)
    assert tree.structure(Cell(1, 5)) != tree.structure(Cell(1, 6))


def test_user_classes_may_be_containers() -> None:
    doubled = tree.map(lambda x: 2 * x, Pair(1, [2]))
    assert isinstance(doubled, Pair)
    assert (doubled.x, doubled.y) == (2, [4])


def test_map_takes_several_trees() -> None:
    assert tree.map(lambda x, y: x - y, {"a": 5, "b": [6]}, {"a": 1, "b": [2]}) == {
        "a": 4,
        "b": [4],
    }


def test_map_names_both_containers_when_they_differ() -> None:
    with pytest.raises(
        ArgumentError, match=r"^the containers do not match: \[\*, \*\] and \[\*\]\n"
    ):
        tree.map(lambda x, y: x, [1, 2], [1])


def test_reduce_and_transpose() -> None:
    assert tree.reduce(lambda x, y: x + y, {"a": 1, "b": [2, 3]}) == 6
    assert tree.all([True, {"a": 1}])
    assert not tree.all([True, {"a": 0}])
    outer, inner = tree.structure([0, 0]), tree.structure({"a": 0, "b": 0})
    turned = tree.transpose(outer, inner, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    assert turned == {"a": [1, 3], "b": [2, 4]}


def test_path_functions_find_the_same_leaves() -> None:
    trees: list[object] = [
        {"b": [1, (2, None)], "a": Layer(3, 4)},
        {2: 1, 1: 2},
        [Model([Layer(1, 2)], 3), (), [], {}],
        1,
        None,
    ]

    class Leaf:
        signature = "int"

    def sign(x: object) -> str:
        return type(x).__name__

    for each in trees:
        assert tree.flatten_with_key(each, Leaf, sign)[0] == tree.leaves(each)
    others: list[object] = [[[1], 2], [[1, 2]], ([1], 2), {"a": 1}]
    tokens = [tree.flatten_with_key(each, Leaf, sign)[1] for each in (*trees, *others)]
    assert len(set(tokens)) == len(tokens)
    assert (
        tree.flatten_with_key([1], Leaf, sign)[1] == tree.flatten_with_key([Leaf()], Leaf, sign)[1]
    )


def test_register_dataclass_requires_a_dataclass() -> None:
    with pytest.raises(ArgumentError, match="int is not a dataclass; decorate it with @dataclass "):
        tree.register_dataclass(int)


def test_every_field_must_be_data_or_meta() -> None:
    @dataclass
    class Odd:
        x: int
        y: int

    message = "the fields of Odd are x, y, but data_fields and meta_fields are x and none"
    with pytest.raises(ArgumentError, match=message):
        tree.register_dataclass(Odd, data_fields=["x"])


def entries(prefix: object, full: object) -> list[object]:
    return broadcast_prefix(prefix, full, lambda x: isinstance(x, str), "in_shardings of f")


def test_a_prefix_entry_applies_to_its_subtree() -> None:
    assert entries("x", {"a": [1, 2], "b": 3}) == ["x", "x", "x"]
    assert entries({"a": "x", "b": "y"}, {"a": [1, 2], "b": 3}) == ["x", "x", "y"]
    assert entries(Model(["x"], "y"), Model([Layer(1, 2)], 3)) == ["x", "x", "y"]  # type: ignore[list-item]
    assert entries(("x", None), (1, None)) == ["x"]


def test_errors_of_mismatched_prefixes_state_the_path() -> None:
    with pytest.raises(ArgumentError) as caught:
        entries({"a": ["x", "y"]}, {"a": [1, 2, 3]})
    first, *rest = str(caught.value).split("\n")
    assert first == (
        "in_shardings of f has a list of 2 at ['a'], where the value has a list of 3; give one "
        "entry for the whole subtree, or the same containers"
    )
    assert "test_tree.py" in rest[0]
    with pytest.raises(ArgumentError, match=r"in_shardings of f has 3 of type int at \[1\]"):
        entries(("x", 3), (1, 2))
    with pytest.raises(ArgumentError, match="has a tuple of 1, where the value has one leaf"):
        entries(("x",), 1)


def test_registered_classes_and_builtin_containers() -> None:
    @dataclass
    class Registered:
        x: int

    assert not tree.is_registered(Registered)
    tree.register_node(Registered, lambda r: ((r.x,), None), lambda _, x: Registered(*x))
    assert all(map(tree.is_registered, (Registered, list, tuple, dict, type(None))))
    assert not tree.is_registered(int)
