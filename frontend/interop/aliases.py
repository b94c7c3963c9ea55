"""The names that versions of JAX give to primitives, relative to the names of JAX 0.10."""

from collections.abc import Mapping

import jax

_OLD = {"pjit": "jit", "checkpoint": "remat2", "core_call": "closed_call"}
_BEFORE_TYPES = {"psum2": "psum_invariant", "pbroadcast": "pvary"}
"""Primitives of `shard_map` in versions in which types have no varying axes."""
_JAXPR = {"custom_vjp_call_jaxpr": "custom_vjp_call"}

ALIASES: Mapping[tuple[int, int], Mapping[str, str]] = {
    (0, 4): {**_OLD, **_BEFORE_TYPES, **_JAXPR, "xla_call": "jit"},
    (0, 5): {**_OLD, **_BEFORE_TYPES, **_JAXPR},
    (0, 6): {**_OLD, **_JAXPR},
    (0, 7): _OLD,
    (0, 10): {},
}
"""The names that differ, by version; a version between two entries uses the older entry."""


def version() -> tuple[int, int]:
    """Return the installed version of JAX as (major, minor)."""
    major, minor, *_ = jax.__version__.split(".")
    return int(major), int(minor)


def names_of(at: tuple[int, int]) -> Mapping[str, str]:
    """Return the names that differ in a version (major, minor)."""
    older = [each for each in ALIASES if each <= at]
    return ALIASES[max(older) if older else min(ALIASES)]


_names = names_of(version())


def canonical_name(name: str) -> str:
    """Return the name in JAX 0.10 of a primitive of the installed JAX."""
    return _names.get(name, name)
