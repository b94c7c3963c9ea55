"""Import of programs from other libraries. `from_jax` is the entry point for JAX.

The modules are imported on first use only, because they need the extra `jax`.
Input: a Python function that is written for JAX, Flax or Equinox. Output: a function of shardir.
Start with `imported_function.py`; `jaxpr_reader.py` converts equations by the rules in
`primitive_rules/`.
"""

from importlib.util import find_spec

from shardir.errors import ShardirError


class MissingExtraError(ShardirError, ImportError):
    """An optional dependency (an extra of this package) is not installed."""


if find_spec("jax") is None:
    raise MissingExtraError(
        "shardir.interop.jax reads programs of JAX, which is not installed; "
        "pip install 'shardir[jax]'",
        name="jax",
    )
