"""The names that versions of JAX give to primitives, relative to the names of JAX 0.10."""

from collections.abc import Mapping

import jax

_OLD_NAMES = {"pjit": "jit", "checkpoint": "remat2", "core_call": "closed_call"}
_UNTYPED_VARYING_NAMES = {"psum2": "psum_invariant", "pbroadcast": "pvary"}
"""Primitives of `shard_map` in versions in which types have no varying axes."""
_JAXPR_NAMES = {"custom_vjp_call_jaxpr": "custom_vjp_call"}

ALIASES_BY_VERSION: Mapping[tuple[int, int], Mapping[str, str]] = {
    (0, 4): {**_OLD_NAMES, **_UNTYPED_VARYING_NAMES, **_JAXPR_NAMES, "xla_call": "jit"},
    (0, 5): {**_OLD_NAMES, **_UNTYPED_VARYING_NAMES, **_JAXPR_NAMES},
    (0, 6): {**_OLD_NAMES, **_JAXPR_NAMES},
    (0, 7): _OLD_NAMES,
    (0, 10): {},
}
"""The names that differ, by version; a version between two entries uses the older entry."""


def jax_version() -> tuple[int, int]:
    """Return the installed version of JAX as (major, minor)."""
    major, minor, *_ = jax.__version__.split(".")
    return int(major), int(minor)


def aliases_of_version(at: tuple[int, int]) -> Mapping[str, str]:
    """Return the names that differ in a version (major, minor)."""
    older = [each for each in ALIASES_BY_VERSION if each <= at]
    return ALIASES_BY_VERSION[max(older) if older else min(ALIASES_BY_VERSION)]


_installed_aliases = aliases_of_version(jax_version())


def canonical_name(name: str) -> str:
    """Return the name in JAX 0.10 of a primitive of the installed JAX."""
    return _installed_aliases.get(name, name)
