"""The shardings that a compiled function requests for its arguments and results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from shardir.frontend.argument_checks import check_positional_only
from shardir.frontend.arrays.array import Array
from shardir.frontend.config import resolve_uneven_mode
from shardir.frontend.dispatch.programs.lowering import check_boundary_divides
from shardir.frontend.dispatch.traced_calls import ArgumentLeaf, resolve_argument_sharding
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.deferred_sharding import DeferredSharding
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.requested_sharding import (
    broadcast_sharding_requests,
    resolve_sharding,
)
from shardir.frontend.shardings.sharding import Sharding, SingleDeviceSharding
from shardir.frontend.tracing.parameters import Dynamic


@final
@dataclass(frozen=True, slots=True)
class BoundaryShardings:
    """The requested shardings of the function `name`, in the forms that `jit` takes.

    If calls move their arguments to one `device`, all arguments and results are there.
    """

    name: str
    in_shardings: object
    out_shardings: object
    device: Device | None
    uneven: str | None

    def argument_requests(self, dynamic: Dynamic, count: int) -> list[object]:
        """Return the requested sharding of each argument, not yet resolved."""
        if self.device is not None:
            return [SingleDeviceSharding(self.device)] * count
        if self.in_shardings is None:
            return [None] * count
        args, options = dynamic
        check_positional_only(f"{self.name} has in_shardings", options)
        word = f"in_shardings of {self.name}"
        return broadcast_sharding_requests(self.in_shardings, args, word)

    def resolve_arguments(self, requests: Sequence[object]) -> list[Sharding | None]:
        """Return the shardings of requests for arguments, `None` for those that are deferred."""
        return self._resolve(requests, "in_shardings")

    def resolve_results(self, results: tree.PyTreeDef) -> list[Sharding | None]:
        """Return the requested sharding of each result."""
        if self.device is not None:
            return [SingleDeviceSharding(self.device)] * results.num_leaves
        if self.out_shardings is None:
            return [None] * results.num_leaves  # Arrays of float0 are no leaves of the results.
        whole = tree.unflatten(results, range(results.num_leaves))
        word = f"out_shardings of {self.name}"
        return self._resolve(
            broadcast_sharding_requests(self.out_shardings, whole, word), "out_shardings"
        )

    def _resolve(self, requests: Sequence[object], option: str) -> list[Sharding | None]:
        word = f"{option} of {self.name}"
        return [
            None if isinstance(each, DeferredSharding) else resolve_sharding(each, word)
            for each in requests
        ]

    def place_arguments(
        self,
        leaves: Sequence[PyTree],
        described: Sequence[ArgumentLeaf],
        requested: Sequence[Sharding | None],
    ) -> list[Sharding | None]:
        """Return the sharding of each argument; raise if it is elsewhere or does not divide."""
        if self.device is not None:
            return list(requested)  # Calls move their arguments there.
        homes = [
            resolve_argument_sharding(leaf, sharding)
            for leaf, sharding in zip(described, requested, strict=True)
        ]
        uneven = resolve_uneven_mode(self.uneven, self.name)
        for given, leaf, sharding in zip(leaves, described, homes, strict=True):
            # A committed array was checked when it was placed.
            there = type(given) is Array and leaf.signature.sharding is not None
            if sharding is not None and not there:
                check_boundary_divides(
                    leaf.description, sharding, leaf.signature.abstract.type, uneven
                )
        return homes
