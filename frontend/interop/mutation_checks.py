"""Detection of in-place changes of containers among the arguments of a function.

A traced function receives copies of containers, as under `jax.jit`, so that values it stores in
them do not reach the caller's containers. A value that is not returned either would be lost
silently.
"""

import builtins
from collections.abc import Sequence
from types import ModuleType

import jax
import numpy as np

from shardir.caller_warnings import warn_caller
from shardir.frontend.errors import LostUpdateError
from shardir.frontend.interop.graph_objects import is_graph_object, nnx_module
from shardir.frontend.interop.jax_containers import leaf_paths
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location


class ArgumentContainers:
    """The containers among the arguments of a function, and their original contents."""

    def __init__(self, arguments: object) -> None:
        self._arguments = arguments
        self._leaves, self._structure = _flatten(arguments)
        self._attributes = {
            i: dict(vars(x)) for i, x in enumerate(self._leaves) if _is_plain_object(x)
        }

    def check(self, name: str, labels: Sequence[str], result: object) -> None:
        """Raise `LostUpdateError` for a value that the function `name` stored and did not return.

        An item that the function only removed is not lost, because the caller still has it: this is
        a warning, as all results are correct. `labels` are the names of the positional arguments.
        """
        self._check_attributes(name, labels)
        leaves, structure = _flatten(self._arguments)
        same = len(leaves) == len(self._leaves) and all(map(is_same_object, leaves, self._leaves))
        if same and structure == self._structure:
            return
        returned = {id(x) for x in jax.tree_util.tree_leaves(result)}
        before = dict(zip(_argument_paths(self._structure, labels), self._leaves, strict=True))
        after = dict(zip(_argument_paths(structure, labels), leaves, strict=True))
        only_removed = _is_subsequence(leaves, self._leaves)
        if not only_removed:
            for path, leaf in after.items():
                if leaf is not before.get(path) and id(leaf) not in returned:
                    raise LostUpdateError(
                        with_location(
                            f"{name} stores a value in its argument, at {path}, and does not "
                            "return it; the container is a copy of the caller's, which would keep "
                            "the old value: return the new one, or copy the container before "
                            "changing it"
                        )
                    )
        kept = {id(x) for x in leaves} | returned
        removed = [
            path
            for path, leaf in before.items()
            if id(leaf) not in kept and (only_removed or path not in after)
        ]
        if removed:
            warn_caller(
                f"{name} removes {', '.join(removed[:3])} from its arguments; the containers are "
                "copies of the caller's, which keep it",
                UserWarning,
            )

    def _check_attributes(self, name: str, labels: Sequence[str]) -> None:
        """Raise `LostUpdateError` for a change of an object that is not a container.

        The function runs once for many calls, so that such a change happens once, during tracing.
        New attributes, such as cached results, count as changes only if they contain tracers.
        """
        for i, before in self._attributes.items():
            for attribute, value in vars(self._leaves[i]).items():
                if attribute in before and value is before[attribute]:
                    continue
                traced = any(
                    isinstance(x, jax.core.Tracer) for x in jax.tree_util.tree_leaves(value)
                )
                if traced or (attribute in before and not _is_equal(value, before[attribute])):
                    path = _argument_paths(self._structure, labels)[i]
                    raise LostUpdateError(
                        with_location(
                            f"{name} changes the attribute {attribute!r} of its argument {path}, "
                            f"{brief_with_type(self._leaves[i])}, which happens once, while it is "
                            "traced, and not in every call: return the new value, or make the "
                            "class a pytree node of JAX (for objects of flax.nnx, nnx.split "
                            "and nnx.merge)"
                        )
                    )


def _is_plain_object(x: object) -> bool:
    """Return whether `x` is an object with attributes, but not an array, class or module."""
    kinds = (type, ModuleType, jax.Array, np.ndarray, np.generic)
    return hasattr(x, "__dict__") and not isinstance(x, kinds) and not is_graph_object(x)


def _is_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return False


def _is_subsequence(some: Sequence[object], all: Sequence[object]) -> bool:
    """Return whether `all` without some of its elements is `some`."""
    rest = iter(all)
    return builtins.all(any(x is each for each in rest) for x in some)


def is_same_object(one: object, other: object) -> bool:
    return one is other


def _flatten(arguments: object) -> tuple[list[PyTree], jax.tree_util.PyTreeDef]:
    """Return the leaves and the structure; nnx objects and nnx states are leaves."""
    nnx = nnx_module()
    leaves, structure = jax.tree_util.tree_flatten(
        arguments,
        is_leaf=None if nnx is None else lambda x: is_graph_object(x) or isinstance(x, nnx.State),
    )
    return leaves, structure


def _argument_paths(structure: object, labels: Sequence[str]) -> list[str]:
    """Return the paths of the leaves of (positional, named) arguments, as `params.w`."""
    result = []
    for path in leaf_paths(structure):
        kind, _, rest = path.partition(".")
        number, dot, inner = rest.partition(".")
        if kind == "0" and number.isdigit():
            label = labels[int(number)] if int(number) < len(labels) else f"argument {number}"
            result.append(f"{label}{dot}{inner}")
        else:
            result.append(rest)
    return result
