"""Programs of other libraries as programs of ours. `from_jax` is the way in from JAX.

Nothing here is imported before it is asked for, because it needs the extra `jax`.
"""

from importlib.util import find_spec

from shardir.errors import ShardirError


class MissingExtraError(ShardirError, ImportError):
    """Something that an extra of this package brings, and that is not installed."""


if find_spec("jax") is None:
    raise MissingExtraError(
        "shardir.interop.jax reads programs of JAX, which is not installed; "
        "pip install 'shardir[jax]'",
        name="jax",
    )
