"""The JAX shim: runs programs that contain `import jax` on shardir.

The command `shardir as-jax train.py --steps 3` runs a script in which `import jax` imports shardir
under JAX's names, including those of older versions; the same applies to modules in the script's
folder. In other programs,

    with shardir_as_jax("training"):
        import jax.numpy as jnp
        import training

has this effect for the imports in the block and inside the module `training`. For all other code of
the process, `jax` remains JAX if it is installed. A name without a counterpart in shardir raises an
error that names the nearest alternative.
"""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE = {
    "shardir.interop.in_place_of_jax.blocks": ("shardir_as_jax",),
    "shardir.interop.in_place_of_jax.nearest": ("UncoveredImport", "UncoveredName"),
    "shardir.interop.in_place_of_jax.programs": ("Program",),
    "shardir.interop.in_place_of_jax.scripts": ("run_script",),
    "shardir.interop.in_place_of_jax.settings": ("UncoveredSetting",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.interop.in_place_of_jax.blocks import shardir_as_jax as shardir_as_jax
    from shardir.interop.in_place_of_jax.nearest import (
        UncoveredImport as UncoveredImport,
        UncoveredName as UncoveredName,
    )
    from shardir.interop.in_place_of_jax.programs import Program as Program
    from shardir.interop.in_place_of_jax.scripts import run_script as run_script
    from shardir.interop.in_place_of_jax.settings import UncoveredSetting as UncoveredSetting
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
