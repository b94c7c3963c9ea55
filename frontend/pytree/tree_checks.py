"""Checks of arguments of pytree functions, and the text of pytrees in errors."""

from collections.abc import Callable, Iterable

import optree

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.errors import StructureError
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location


def check_acyclic(container: object) -> None:
    """Raise `StructureError` if a list, tuple or dictionary contains itself.

    The search is iterative, because it runs after the recursion limit was reached.
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
                    with_location(
                        f"the {type(part).__name__} {shown} contains itself; a pytree must be "
                        "finite"
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


def _parts(container: object) -> PyTree:
    return container.values() if isinstance(container, dict) else container


def check_flattened_nodes(tree: PyTree, namespace: str) -> None:
    """Raise `StructureError` if a function that flattens a registered class returns wrong values.

    It runs after the tree could not be flattened.
    """
    entry = optree.register_pytree_node.get(type(tree), namespace=namespace)
    if entry is None:
        return
    found = entry.flatten_func(tree)
    name = type(tree).__name__
    is_complete = isinstance(found, tuple) and len(found) in (2, 3)
    if not is_complete or (len(found) == 3 and not isinstance(found[2], Iterable)):
        raise StructureError(
            with_location(
                f"the function that flattens {name} must return (children, auxiliary data), it "
                f"returned {brief(found)}"
            )
        )
    if not isinstance(found[0], Iterable):
        raise StructureError(
            with_location(
                f"the function that flattens {name} must return (children, auxiliary data) with "
                f"an iterable of children, it returned {brief(found)}"
            )
        )
    for child in found[0]:
        check_flattened_nodes(child, namespace)


def check_node_class(what: str, kind: object, **functions: object) -> None:
    """Raise `StructureError` unless `kind` is a class and each of `functions` is callable.

    `what` and the keywords name them in errors.
    """
    if not isinstance(kind, type):
        raise StructureError(with_location(f"{what} takes a class, got {kind!r}"))
    for name, function in functions.items():
        if not callable(function):
            raise StructureError(
                with_location(f"{name} of {kind.__name__} must be a function, got {function!r}")
            )


def already_registered_error(kind: type) -> StructureError:
    """Return the error for a class that is registered twice."""
    return StructureError(
        with_location(f"the class {kind.__name__} is a container already; register it once")
    )


def check_function(what: str, function: object) -> None:
    """Raise `StructureError` unless `function` is callable; `what` names the caller."""
    if not callable(function):
        raise StructureError(with_location(f"{what} takes a function, got {function!r}"))


def check_is_leaf(is_leaf: object) -> None:
    """Raise `StructureError` unless `is_leaf` is callable or `None`."""
    if is_leaf is not None and not callable(is_leaf):
        raise StructureError(
            with_location(
                f"is_leaf must be a function that states which containers are leaves, got "
                f"{is_leaf!r}"
            )
        )


def checked_is_leaf(is_leaf: UserFunction) -> Callable[..., bool]:
    """Return `is_leaf` with checks that raise `StructureError` for invalid parameters and
    results."""

    def check_result(*place: object) -> bool:
        found = call_user_function(is_leaf, "is_leaf", place)
        if not hasattr(found, "__bool__"):
            raise StructureError(
                with_location(f"is_leaf returns True or False, it returned {found!r}")
            )
        return check_flag("what is_leaf returns", found)

    return check_result


def list_items(what: str, given: PyTree) -> list[PyTree]:
    """Return the items of an iterable as a list; raises `StructureError` for any other object."""
    try:
        items = iter(given)
    except TypeError:
        raise StructureError(with_location(f"{what} are several, got {given!r}")) from None
    return list(items)
