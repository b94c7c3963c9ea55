"""What versions of JAX call the primitives that the table has by their names in JAX 0.10."""

from collections.abc import Mapping

import jax

_OLD = {"pjit": "jit", "checkpoint": "remat2", "core_call": "closed_call"}
_BEFORE_TYPES = {"psum2": "psum_invariant", "pbroadcast": "pvary"}
"""In the years before varying axes were part of types, `shard_map` had these of its own."""
_JAXPR = {"custom_vjp_call_jaxpr": "custom_vjp_call"}

ALIASES: Mapping[tuple[int, int], Mapping[str, str]] = {
    (0, 4): {**_OLD, **_BEFORE_TYPES, **_JAXPR, "xla_call": "jit"},
    (0, 5): {**_OLD, **_BEFORE_TYPES, **_JAXPR},
    (0, 6): {**_OLD, **_JAXPR},
    (0, 7): _OLD,
    (0, 10): {},
}
"""For each version, the names that differ there; of one between two, those of the older."""


def version() -> tuple[int, int]:
    """The version of JAX that is installed, (major, minor)."""
    major, minor, *_ = jax.__version__.split(".")
    return int(major), int(minor)


def names_of(at: tuple[int, int]) -> Mapping[str, str]:
    """The names that differ in a version, (major, minor)."""
    older = [each for each in ALIASES if each <= at]
    return ALIASES[max(older) if older else min(ALIASES)]


_names = names_of(version())


def canonical_name(name: str) -> str:
    """The name in the table of a primitive of the JAX that is installed."""
    return _names.get(name, name)
