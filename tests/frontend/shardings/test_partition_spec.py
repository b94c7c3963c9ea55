"""`PartitionSpec`: a tuple of entries with its own repr."""

import copy
import pickle

import pytest

from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, P, PartitionSpec


def test_reprs() -> None:
    assert repr(P()) == "P()"
    assert repr(P("a")) == "P('a',)"
    assert repr(P("a", None)) == "P('a', None)"
    assert repr(P(("a", "b"), P.UNCONSTRAINED)) == "P(('a', 'b'), UNCONSTRAINED)"
    assert str(UNCONSTRAINED) == "UNCONSTRAINED"


def test_it_is_the_tuple_of_its_entries() -> None:
    spec = P("a", None, ("b", "c"))
    assert spec == ("a", None, ("b", "c"))
    assert hash(spec) == hash(("a", None, ("b", "c")))
    assert (len(spec), spec[2], list(spec)) == (3, ("b", "c"), ["a", None, ("b", "c")])
    assert repr(P("a") + P(None)) == repr(P("a") + (None,)) == "P('a', None)"
    assert repr(("b",) + P("a", unreduced={"c"})) == "P('b', 'a', unreduced={'c'})"
    with pytest.raises(TypeError):
        ["b"] + P("a")


def test_trailing_nones_make_specs_unequal() -> None:
    assert P("a") != P("a", None)
    assert P() != P(None)


def test_equivalent_entries_are_normalized() -> None:
    assert P(("a",), (), ["b", "c"]) == P("a", None, ("b", "c"))


def test_copies_are_equal() -> None:
    spec = P("a", ("b", "c"), UNCONSTRAINED)
    for other in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert isinstance(other, PartitionSpec)
        assert other == spec
        assert other[2] is UNCONSTRAINED


def test_axes_of_a_dimension() -> None:
    spec = P("a", None, ("b", "c"), UNCONSTRAINED)
    assert [spec.axes(i) for i in range(5)] == [("a",), (), ("b", "c"), UNCONSTRAINED, ()]
    assert list(spec.mentioned_axes()) == ["a", "b", "c"]


@pytest.mark.parametrize("entry", [3, ("a", None), ("a", ("b",)), (UNCONSTRAINED,)])
def test_invalid_entries_are_errors(entry: object) -> None:
    with pytest.raises(ShardingError) as caught:
        P("a", entry)
    assert str(caught.value).partition("\n")[0] == (
        f"entry 1 of a PartitionSpec is {entry!r}; it must be None, the name of a mesh axis, "
        "a tuple of names or PartitionSpec.UNCONSTRAINED"
    )


def test_equal_specs_are_one_object() -> None:
    assert P("a", ()) is P("a", None)


def test_subclassing_is_an_error() -> None:
    with pytest.raises(ArgumentError) as caught:
        type("Mine", (P,), {})
    assert str(caught.value).partition("\n")[0] == (
        "Mine subclasses PartitionSpec, which does not support it; write a function that returns a "
        "PartitionSpec"
    )
