"""Pytrees: flatten, map and unflatten nested containers of arrays."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.pytree.key_paths": (
        "flatten_with_path",
        "leaves_with_path",
        "map_with_path",
    ),
    "shardir.frontend.pytree.tree": (
        "PyTreeDef",
        "all",
        "broadcast",
        "flatten",
        "leaves",
        "map",
        "reduce",
        "reduce_associative",
        "register_dataclass",
        "register_node",
        "static",
        "structure",
        "transpose",
        "unflatten",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.pytree.key_paths import (
        flatten_with_path as flatten_with_path,
        leaves_with_path as leaves_with_path,
        map_with_path as map_with_path,
    )
    from shardir.frontend.pytree.tree import (
        PyTreeDef as PyTreeDef,
        all as all,
        broadcast as broadcast,
        flatten as flatten,
        leaves as leaves,
        map as map,
        reduce as reduce,
        reduce_associative as reduce_associative,
        register_dataclass as register_dataclass,
        register_node as register_node,
        static as static,
        structure as structure,
        transpose as transpose,
        unflatten as unflatten,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
