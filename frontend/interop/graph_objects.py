"""Flax nnx objects that functions change in place: modules, optimizers, metrics, rngs.

JAX traces pure functions, so that such an object enters a traced function as a static graph
definition and arrays, is rebuilt inside, and leaves as the graph definition and arrays after the
call. `nnx.update_context` then updates the caller's objects, as `nnx.jit` does: shared references
stay shared, new Variables are added, removed ones are deleted.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from shardir.frontend.arrays.array import Array
from shardir.frontend.config import config
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.random.keys import key_data, key_impl
from shardir.ir.dtypes import KEYS

if TYPE_CHECKING:
    from flax import nnx

_CONTEXT = "shardir.from_jax"
"""The tag of the update contexts of calls of imported functions."""


def nnx_module() -> ModuleType | None:
    """Return `flax.nnx`, or `None` if the program has not imported it."""
    return sys.modules.get("flax.nnx")


def is_graph_object(x: object) -> bool:
    """Return whether `x` is an nnx object or a Variable, which a function can change in place."""
    nnx = nnx_module()
    return nnx is not None and bool(nnx.graphlib.is_graph_node(x))


def objects_within(root: object) -> list[object]:
    """Return the nnx objects and Variables that `root`, an nnx object, consists of."""
    nnx = nnx_module()
    assert nnx is not None
    return [node for _, node in nnx.iter_graph(root) if is_graph_object(node)]


class SplitObject:
    """An nnx object as a static graph definition and the arrays of its Variables.

    JAX treats it as a container whose leaves have the same paths as in the object.
    """

    __slots__ = ("graphdef", "state")

    def __init__(self, graphdef: "nnx.GraphDef", state: object) -> None:
        self.graphdef, self.state = graphdef, state


@dataclass(frozen=True)
class _ObjectPath:
    """The path of an array in an object, as one key of JAX."""

    text: str

    def __str__(self) -> str:
        return self.text


SplitStructure: TypeAlias = tuple["nnx.GraphDef", jax.tree_util.PyTreeDef]
"""The structure of a `SplitObject`: the graph definition, and the structure of its state."""


def _with_keys(x: SplitObject) -> tuple[list[tuple[_ObjectPath, object]], SplitStructure]:
    pairs, structure = jax.tree_util.tree_flatten_with_path(x.state)
    named = []
    for path, leaf in pairs:
        text = jax.tree_util.keystr(path, simple=True, separator=".")
        named.append((_ObjectPath(text.removesuffix(".value")), leaf))
    return named, (x.graphdef, structure)


def _flatten(x: SplitObject) -> tuple[list[object], SplitStructure]:
    leaves, structure = jax.tree_util.tree_flatten(x.state)
    return leaves, (x.graphdef, structure)


def _unflatten(definition: SplitStructure, leaves: Sequence[object]) -> SplitObject:
    graphdef, structure = definition
    return SplitObject(graphdef, structure.unflatten(leaves))


jax.tree_util.register_pytree_with_keys(SplitObject, _with_keys, _unflatten, _flatten)


def is_split_object(x: object) -> TypeGuard[SplitObject]:
    """Return whether `x` is a `SplitObject`."""
    return isinstance(x, SplitObject)


@dataclass(frozen=True)
class Unchanged:
    """A placeholder for an array that the function did not replace: leaf `index`."""

    index: int


@dataclass(frozen=True)
class UpdatedObjects:
    """The results of a function with nnx objects among its arguments, as pure containers.

    `changed` states whether the function changed an object; `objects` are the objects in the order
    of the arguments, with `Unchanged` for arrays that it did not replace.
    """

    changed: bool
    objects: PyTree
    result: PyTree


jax.tree_util.register_dataclass(
    UpdatedObjects, data_fields=["objects", "result"], meta_fields=["changed"]
)


def contains_objects(arguments: object, states_too: bool = False) -> bool:
    """Return whether an nnx object is among the arguments.

    `states_too` states that Variables in an `nnx.State` count as objects, as they do for `nnx.jit`;
    for other functions a State is data.
    """
    if nnx_module() is None:
        return False
    return any(map(is_graph_object, _leaves(arguments, states_too)))


def is_nnx_function(function: object) -> bool:
    """Return whether `function` is a transformed function of nnx, such as a result of `nnx.jit`."""
    return type(function).__module__.startswith("flax.nnx.")


def update_context() -> AbstractContextManager[object]:
    """Return the context in which nnx tracks the caller's objects during one call."""
    nnx = nnx_module()
    assert nnx is not None
    context: AbstractContextManager[object] = nnx.update_context(_CONTEXT)
    return context


def split_objects(arguments: object, states_too: bool = False) -> PyTree:
    """Replace each nnx object in the arguments by a `SplitObject`."""
    nnx = nnx_module()
    assert nnx is not None
    with nnx.split_context(_CONTEXT) as context:
        return jax.tree_util.tree_map(
            lambda x: SplitObject(*context.split(x)) if is_graph_object(x) else x,
            arguments,
            is_leaf=_is_leaf(states_too),
        )


def merge_objects(split: object, inner: bool) -> PyTree:
    """Undo `split_objects`: return new objects if `inner`, else the updated ones."""
    nnx = nnx_module()
    assert nnx is not None
    with nnx.merge_context(_CONTEXT, inner) as context:
        return jax.tree_util.tree_map(
            lambda x: context.merge(x.graphdef, x.state) if is_split_object(x) else x,
            split,
            is_leaf=is_split_object,
        )


def call_with_merged_objects(
    function: UserFunction, split: object, states_too: bool
) -> UpdatedObjects:
    """Call a traced function with the arguments of `split_objects`; return its `UpdatedObjects`."""
    before = [x for x in jax.tree_util.tree_leaves(split, is_leaf=is_split_object)
              if is_split_object(x)]  # fmt: skip
    merged = merge_objects(split, inner=True)
    objects = [x for x in _leaves(merged, states_too) if is_graph_object(x)]
    result = function(merged)
    after, out = split_objects((objects, result), states_too)
    positions = {id(x): i for i, x in enumerate(jax.tree_util.tree_leaves(split))}
    arrays = jax.tree_util.tree_leaves(after)
    same_leaves = len(arrays) == len(jax.tree_util.tree_leaves(before)) and all(
        id(x) in positions for x in arrays
    )
    changed = not same_leaves or any(
        old.graphdef.with_no_outer_index() != new.graphdef.with_no_outer_index()
        for old, new in zip(before, after, strict=True)
    )
    after = jax.tree_util.tree_map(
        lambda x: Unchanged(positions[id(x)]) if id(x) in positions else x, after
    )
    return UpdatedObjects(changed, after, out)


def update_caller_objects(written: UpdatedObjects, split: object) -> PyTree:
    """Update the caller's objects from the results of a function; return its result.

    Arrays on one device become JAX arrays again, so that JAX functions accept the objects; an array
    over several devices stays an array of shardir, which holds its sharding.
    """
    leaves = jax.tree_util.tree_leaves(split)

    def restore(leaf: object) -> object:
        if isinstance(leaf, Unchanged):
            return leaves[leaf.index]
        return as_jax_array(leaf) if isinstance(leaf, Array) else leaf

    objects = jax.tree_util.tree_map(restore, written.objects)
    _, out = merge_objects((objects, written.result), inner=False)
    return out


def as_jax_array(x: Array) -> Array | jax.Array:
    """Return `x` as a JAX array, or `x` itself if it is sharded over several devices."""
    if len(x.sharding.device_set) > 1:
        return x
    if x.signature.abstract.type.dtype in KEYS:
        words = jnp.asarray(np.asarray(key_data(x)))
        return jax.random.wrap_key_data(words, impl=key_impl(x))
    with jax.enable_x64(config.enable_x64):  # Without this, JAX narrows 64-bit elements to 32 bits.
        return jnp.asarray(np.asarray(x))


def _leaves(tree: object, states_too: bool) -> list[object]:
    result: list[object] = jax.tree_util.tree_leaves(tree, is_leaf=_is_leaf(states_too))
    return result


def _is_leaf(states_too: bool) -> Callable[[object], bool]:
    nnx = nnx_module()
    assert nnx is not None
    return lambda x: is_graph_object(x) or (not states_too and isinstance(x, nnx.State))
