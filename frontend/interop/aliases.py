"""What versions of JAX call the primitives that the table has by their names in JAX 0.10."""

from collections.abc import Mapping

import jax

ALIASES: Mapping[tuple[int, int], Mapping[str, str]] = {
    (0, 4): {
        "pjit": "jit",
        "psum2": "psum_invariant",
        "pbroadcast": "pvary",
        "random_clone": "copy",
        "checkpoint": "remat2",
        "reduce_precision_p": "reduce_precision",
        "symmetric_product": "symmetric_product",
        "xla_call": "jit",
        "core_call": "closed_call",
        "custom_vjp_call_jaxpr": "custom_vjp_call",
    },
    (0, 5): {
        "pjit": "jit",
        "psum2": "psum_invariant",
        "pbroadcast": "pvary",
        "checkpoint": "remat2",
        "custom_vjp_call_jaxpr": "custom_vjp_call",
    },
    (0, 6): {"pjit": "jit", "checkpoint": "remat2", "custom_vjp_call_jaxpr": "custom_vjp_call"},
    (0, 7): {"pjit": "jit", "checkpoint": "remat2"},
    (0, 8): {"pjit": "jit", "checkpoint": "remat2"},
    (0, 9): {"pjit": "jit", "checkpoint": "remat2"},
    (0, 10): {"pjit": "jit", "checkpoint": "remat2"},
}
"""For each version, the names that differ there."""


def version() -> tuple[int, int]:
    """The version of JAX that is installed, (major, minor)."""
    major, minor, *_ = jax.__version__.split(".")
    return int(major), int(minor)


def names_of(at: tuple[int, int]) -> Mapping[str, str]:
    """The names that differ in a version; of an unlisted one, those of the next older."""
    older = [each for each in ALIASES if each <= at]
    return ALIASES[max(older)] if older else ALIASES[min(ALIASES)]


_names = names_of(version())


def canonical_name(name: str) -> str:
    """The name in the table of a primitive of the JAX that is installed."""
    return _names.get(name, name)
