"""Checks of the arguments of a compiled program: their structure, types and shardings."""

from collections.abc import Sequence

from shardir.frontend.arrays.signature import ArraySignature
from shardir.frontend.dispatch.traced_calls import signature_of_leaf
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_structure import format_structure
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import with_location
from shardir.ir.types import TensorType

MAX_NAMED_DEVICES = 8
"""The maximum number of devices that an error names for a sharding."""


def check_structure(
    name: str, expected: tree.PyTreeDef, args: tuple[PyTree, ...], options: dict[str, PyTree]
) -> list[PyTree]:
    """Return the leaves of a call's arguments; raises `ArgumentError` for another pytree
    structure."""
    leaves, structure = tree.flatten((args, options))
    if structure != expected:
        raise ArgumentError(
            with_location(
                f"{name} was compiled for arguments {format_structure(expected)}, "
                f"and called with {format_structure(structure)}"
            )
        )
    return leaves


def check_arguments(
    name: str,
    leaves: Sequence[object],
    labels: Sequence[str],
    types: Sequence[TensorType],
    shardings: Sequence[Sharding | None],
) -> None:
    """Raise `ArgumentError` for arguments of other types or shardings."""
    for leaf, label, type, sharding in zip(leaves, labels, types, shardings, strict=False):
        signature = signature_of_leaf(leaf, f"argument {label} of {name}")
        if not _is_compatible(signature, type, sharding):
            given = f"{signature.abstract.type}{_sharding_suffix(signature.sharding)}"
            expected = f"{type}{_sharding_suffix(sharding)}"
            if given == expected:  # The meshes have other devices.
                given += _devices_suffix(signature.sharding)
                expected += _devices_suffix(sharding)
            raise ArgumentError(
                with_location(
                    f"argument {label} of {name} is {given}, and it was compiled for {expected}; "
                    "lower it for such arguments"
                )
            )


def _is_compatible(signature: ArraySignature, type: TensorType, sharding: Sharding | None) -> bool:
    given = signature.sharding
    return signature.abstract.type == type and (
        given is None
        or (
            sharding is not None
            and given.device_assignment == sharding.device_assignment
            and given.is_equivalent_to(sharding, type.rank)
        )
    )


def _sharding_suffix(sharding: Sharding | None) -> str:
    return "" if sharding is None else f" placed as {sharding}"


def _devices_suffix(sharding: Sharding | None) -> str:
    if sharding is None:
        return ""
    devices = [f"{each.platform}:{each.id}" for each in sharding.device_assignment]
    more = ", ..." if len(devices) > MAX_NAMED_DEVICES else ""
    return f" on {', '.join(devices[:MAX_NAMED_DEVICES])}{more}"
