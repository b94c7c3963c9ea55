"""Import of functions that are written for JAX, Equinox, Flax or Optax; needs the extra `jax`."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.interop.imported_function": ("ImportedFunction", "from_jax"),
    "shardir.frontend.interop.primitive_rules.registry": (
        "ImportedProgramError",
        "UnknownPrimitiveError",
    ),
    "shardir.frontend.interop.xla.programs": ("explain_xla",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.interop.imported_function import (
        ImportedFunction as ImportedFunction,
        from_jax as from_jax,
    )
    from shardir.frontend.interop.primitive_rules.registry import (
        ImportedProgramError as ImportedProgramError,
        UnknownPrimitiveError as UnknownPrimitiveError,
    )
    from shardir.frontend.interop.xla.programs import explain_xla as explain_xla
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
