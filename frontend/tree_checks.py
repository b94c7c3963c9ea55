"""What cannot be a container of arrays: lists that never end, and classes that are wrongly told;
and how errors show containers.
"""

from collections.abc import Callable
from typing import Any

import optree

from shardir.frontend.errors import StructureError
from shardir.frontend.locations import point


def check_ends(container: Any) -> None:
    """Raise `StructureError` if a list, tuple or dictionary in there contains itself.

    It goes down by a loop, because it is called when recursion has met its limit.
    """
    path = [(container, iter(_parts(container)))]
    above, done = {id(container)}, set[int]()
    while path:
        at, rest = path[-1]
        for part in rest:
            if id(part) in above:
                text = repr(part)
                shown = text if len(text) <= 40 else f"{text[:37]}..."
                raise StructureError(
                    point(
                        f"the {type(part).__name__} {shown} contains itself; arrays are found in "
                        "containers that end"
                    )
                )
            if isinstance(part, (list, tuple, dict)) and id(part) not in done:
                above.add(id(part))
                path.append((part, iter(_parts(part))))
                break
        else:
            path.pop()
            above.discard(id(at))
            done.add(id(at))


def _parts(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def check_kind(what: str, kind: Any, **functions: Any) -> None:
    """Raise `StructureError` unless a class and functions were given to `what`, by these names."""
    if not isinstance(kind, type):
        raise StructureError(point(f"{what} takes a class, got {kind!r}"))
    for name, function in functions.items():
        if not callable(function):
            raise StructureError(
                point(f"{name} of {kind.__name__} must be a function, got {function!r}")
            )


def known_already(kind: type) -> StructureError:
    """The error for a class that is registered once more."""
    return StructureError(
        point(f"the class {kind.__name__} is a container already; register it once")
    )


def check_function(what: str, function: Any) -> None:
    """Raise `StructureError` unless `what` was given a function."""
    if not callable(function):
        raise StructureError(point(f"{what} takes a function, got {function!r}"))


def check_is_leaf(is_leaf: Any) -> None:
    """Raise `StructureError` unless it is a function, or `None`."""
    if is_leaf is not None and not callable(is_leaf):
        raise StructureError(
            point(
                f"is_leaf must be a function that says which containers are leaves, got {is_leaf!r}"
            )
        )


def answering(is_leaf: Callable[..., Any]) -> Callable[..., bool]:
    """`is_leaf`, which raises an error of ours for parameters and answers that it cannot have."""

    def asked(*place: Any) -> bool:
        from shardir.frontend.amounts import flag_of
        from shardir.frontend.parameters import called

        found = called(is_leaf, "is_leaf", place)
        if not hasattr(found, "__bool__"):
            raise StructureError(point(f"is_leaf returns True or False, it returned {found!r}"))
        return flag_of("what is_leaf returns", found)

    return asked


def check_structure(what: str, structure: Any) -> None:
    """Raise `StructureError` unless `what` was given the containers of a tree."""
    if not isinstance(structure, optree.PyTreeSpec):
        raise StructureError(point(f"{what} takes what tree.structure returns, got {structure!r}"))


def listed(what: str, given: Any) -> list[Any]:
    """All that is given; raises `StructureError` unless there are several things, or none."""
    try:
        return list(given)
    except TypeError:
        raise StructureError(point(f"{what} are several, got {given!r}")) from None


class _Leaf:
    """Stands for an array where containers are shown."""

    def __repr__(self) -> str:
        return "*"


def shown(structure: optree.PyTreeSpec) -> str:
    """Containers as Python writes them, with * for each array."""
    try:
        text = repr(optree.tree_unflatten(structure, [_Leaf()] * structure.num_leaves))
    except Exception:  # The user's class, which may want numbers.
        text = ""
    if text and " object at 0x" not in text:
        return text
    return str(structure).removeprefix("PyTreeSpec(").partition(", namespace=")[0]
