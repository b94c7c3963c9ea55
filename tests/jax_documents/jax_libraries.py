"""Documents of libraries on JAX: their functions are called through `from_jax`, with shardir
arrays.

The library needs JAX, so `jax` is JAX itself except for the functions that place arrays on devices.
Functions that the document calls at top level are called through `from_jax`. JAX makes each call
too, on its own results, and the losses of both are compared.
"""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from shardir.interop.jax_shim.module_facade import look_up_jax

PLACING = frozenset(
    [
        "jax.debug.visualize_array_sharding",
        "jax.device_count",
        "jax.device_put",
        "jax.devices",
        "jax.experimental.mesh_utils",
        "jax.local_devices",
        "jax.make_mesh",
        "jax.sharding",
    ]
)
"""Names of JAX that are about where arrays are."""

LIBRARIES = ("equinox", "flax", "optax")


def needs_jax(source: str) -> bool:
    """Return whether code imports a library that computes with JAX."""
    return any(f"import {name}" in source for name in LIBRARIES)


class Mixed(ModuleType):
    """The module `jax`, except for the functions that place arrays."""

    def __init__(self, full: str) -> None:
        super().__init__(full)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in PLACING:
            return look_up_jax(full)
        if any(each.startswith(f"{full}.") for each in PLACING):
            return Mixed(full)
        found = getattr(import_module(self.__name__), name, None)
        return import_module(full) if found is None else found


def import_mixed(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `__import__` that returns the mixed module for `jax`."""

    def bring(
        name: str, scope: Any = None, local: Any = None, wanted: Any = (), level: int = 0
    ) -> Any:
        if level or name.partition(".")[0] != "jax":
            return real(name, scope, local, wanted, level)
        root: Any = Mixed("jax")
        found = root
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        return found if wanted else root

    return bring


def called_outside(sources: Sequence[str]) -> set[str]:
    """Return the names of functions that code calls outside of functions."""
    found = set()
    for source in sources:
        for top in ast.parse(source).body:
            if not isinstance(top, (ast.FunctionDef, ast.ClassDef)):
                found |= {
                    node.func.id
                    for node in ast.walk(top)
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                }
    return found


class Watched:
    """A function of a document called through `from_jax`, with the results of JAX for
    comparison.
    """

    def __init__(self, function: Any, namespace: Mapping[str, Any]) -> None:
        from shardir.interop.jax import from_jax

        self._jax, self._ours = function, from_jax(function)
        self._namespace = namespace
        self._parameters = [*inspect.signature(function).parameters]
        self._known: dict[int, tuple[Any, Any]] = {}
        self.losses: list[tuple[str, float, float]] = []

    def __call__(self, *args: Any) -> Any:
        import jax

        theirs = [jax.tree_util.tree_map(self._counterpart, arg) for arg in args]
        self._take_losses(args, theirs)
        made, wanted = self._ours(*args), self._jax(*theirs)
        pairs = zip(jax.tree_util.tree_leaves(made), jax.tree_util.tree_leaves(wanted), strict=True)
        self._known = {id(one): (one, other) for one, other in pairs}
        return made

    def _counterpart(self, leaf: Any) -> Any:
        """Return the JAX value that corresponds to our `leaf`, or a converted copy if there is
        none.
        """
        known = self._known.get(id(leaf))
        if known is not None:
            return known[1]
        return np.asarray(leaf) if type(leaf).__module__.startswith("shardir") else leaf

    def _take_losses(self, args: Sequence[Any], theirs: Sequence[Any]) -> None:
        from shardir.interop.jax import from_jax

        for name, function in self._namespace.items():
            if "loss" not in name or not inspect.isfunction(function):
                continue
            wanted = [*inspect.signature(function).parameters]
            if set(wanted) <= set(self._parameters):
                chosen = [self._parameters.index(each) for each in wanted]
                ours = from_jax(function)(*(args[i] for i in chosen))
                other = function(*(theirs[i] for i in chosen))
                self.losses.append((name, float(ours), float(other)))

    def report(self, name: str) -> tuple[str, bool]:
        """Report the first and last losses, and whether they agree with JAX to 2e-6 and 1e-3."""
        if not self.losses:
            return f"{name} through from_jax", True
        (loss, first, wanted), (_, last, wanted_last) = self.losses[0], self.losses[-1]
        near = abs(first - wanted) <= 2e-6 * abs(wanted)
        near &= abs(last - wanted_last) <= 1e-3 * abs(wanted_last)
        return (
            f"{name} through from_jax, {len(self.losses)} times: {loss} from {first:.7g} "
            f"(JAX {wanted:.7g}) to {last:.7g} (JAX {wanted_last:.7g})"
        ), near
