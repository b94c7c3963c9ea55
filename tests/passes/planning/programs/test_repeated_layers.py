"""Decisions that layers of one structure share."""

from shardir.ir.module import Value
from shardir.ir.types import TensorType
from shardir.passes.planning.programs.repeated_layers import SharedDecisions, share_decisions


def share(
    params: dict[str, tuple[int, ...]], anchors: dict[str, tuple[int, ...]] | None = None
) -> SharedDecisions:
    """Return the decisions about parameters and anchors with these names and groups; dimensions
    have size 8."""

    def make(named: dict[str, tuple[int, ...]]) -> list[Value]:
        return [Value(TensorType((8,) * len(own), "f32"), name) for name, own in named.items()]

    values, inside = make(params), make(anchors or {})
    own = [*params.values(), *(anchors or {}).values()]
    groups = dict(zip((*values, *inside), own, strict=True))
    return share_decisions(values, groups, dict(enumerate(inside, len(values))))


def test_groups_that_belong_to_one_layer_each_are_shared() -> None:
    """The groups that connect two layers are decisions of their own, as are those of others."""
    found = share({"layers.0.up": (0, 1), "layers.1.up": (1, 2), "layers.2.up": (2, 3)})
    assert found.groups == (((0, 0),), ((0, 1), (1, 0)), ((1, 1), (2, 0)), ((2, 1),))
    found = share({"layers.0.up": (0, 1), "layers.1.up": (2, 3), "head": (4, 4)})
    assert found.groups == (((0, 0), (1, 0)), ((0, 1), (1, 1)), ((2, 0), (2, 1)))
    assert found.params == ((0, 1), (2,))


def test_a_group_of_a_layer_and_of_other_parameters_is_not_shared() -> None:
    found = share({"layers.0.up": (0,), "layers.1.up": (1,), "bias": (1,)})
    assert found.groups == (((0, 0),), ((1, 0), (2, 0)))


def test_groups_of_anchors_are_decisions_of_their_own() -> None:
    found = share({"x": (0,)}, {"gram": (1, 2), "noise": (2, 0)})
    assert found.groups == (((0, 0), (2, 1)), ((1, 0),), ((1, 1), (2, 0)))
    assert found.clashes == frozenset()


def test_dimensions_of_an_anchor_that_clash_are_decided_separately() -> None:
    """Those of a parameter are not."""
    found = share({"x": (0, 0)}, {"gram": (0, 0, 1)})
    assert found.groups == (((0, 0), (0, 1)), ((1, 2),), ((1, 0),), ((1, 1),))
    assert found.clashes == {(1, 0), (1, 1)}


def test_parameters_with_the_same_type_and_groups_are_alike() -> None:
    found = share({"w": (0, 1), "momentum": (0, 1), "v": (1, 0)})
    assert found.alike == ((0, 1), (2,))
