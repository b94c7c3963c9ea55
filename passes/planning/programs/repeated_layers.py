"""Layers of one structure share decisions.

Parameters whose names differ in numbers only (`layers.0.up`, `layers.1.up`) and that have one type
are one class. Groups of dimensions are one class if each of them belongs to a single layer and they
have the same dimensions of the same classes of parameters. A group that connects two layers, such
as the width between two dense layers, remains a decision of its own. So does each dimension of an
anchor that clashes with another one (`anchors.py`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardir.ir.module import Value
from shardir.passes.planning.programs.anchors import clashing_dims

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True, slots=True)
class SharedDecisions:
    """The classes of groups and of parameters.

    `groups` has for each class the dimensions of parameters and of anchors, whose numbers follow
    those of all parameters, as pairs of the number and the dimension. `params` has for each class
    the indices of its parameters. `alike` has the indices of parameters with one type whose
    dimensions belong to the same groups, such as a weight and its momentum. `clashes` are the
    dimensions of anchors that are decided separately from their groups.
    """

    groups: tuple[tuple[tuple[int, int], ...], ...]
    params: tuple[tuple[int, ...], ...]
    alike: tuple[tuple[int, ...], ...]
    clashes: frozenset[tuple[int, int]] = frozenset()


def classify_params(params: Sequence[Value]) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the parameters of each class."""
    classes: dict[tuple[object, ...], list[int]] = {}
    for number, value in enumerate(params):
        classes.setdefault((_class_name(value.name), value.type), []).append(number)
    return tuple(map(tuple, classes.values()))


def share_decisions(
    params: Sequence[Value],
    groups: Mapping[Value, tuple[int, ...]],
    anchors: Mapping[int, Value],
) -> SharedDecisions:
    """Return the decisions about the parameters of a function and the anchors by their indices,
    with those of layers shared."""
    names = [_class_name(value.name) for value in params]
    members: dict[int, list[tuple[int, int]]] = {}
    shared: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    clashes: list[tuple[int, int]] = []
    for number, value in (*enumerate(params), *anchors.items()):
        clashing = clashing_dims(groups[value]) if number in anchors else ()
        for dim, group in enumerate(groups[value]):
            if dim in clashing:
                clashes.append((number, dim))
            else:
                members.setdefault(group, []).append((number, dim))
    for group, dims in members.items():
        layers = {
            _layer(params[number].name) if number < len(params) else None for number, _ in dims
        }
        signature: tuple[object, ...] = (group,)
        if len(layers) == 1 and None not in layers:
            signature = tuple(sorted({(names[number], dim) for number, dim in dims}))
        shared.setdefault(signature, []).extend(dims)
    for each in clashes:
        shared["clash", *each] = [each]
    number_of = {dim: i for i, dims in enumerate(shared.values()) for dim in dims}
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, value in enumerate(params):
        own = tuple(number_of[number, dim] for dim in range(value.type.rank))
        alike.setdefault((value.type, own), []).append(number)
    return SharedDecisions(
        tuple(tuple(dims) for dims in shared.values()),
        classify_params(params),
        tuple(tuple(numbers) for numbers in alike.values()),
        frozenset(clashes),
    )


def _class_name(name: str) -> str:
    return _NUMBER.sub("#", name)


def _layer(name: str) -> str | None:
    """Return the number of the layer in the name of a parameter, or `None`."""
    found = _NUMBER.findall(name)
    return found[0] if found else None
