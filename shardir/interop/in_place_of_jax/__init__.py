"""The JAX shim: runs programs that contain `import jax` on shardir.

The command `shardir as-jax train.py --steps 3` runs a script in which `import jax` imports shardir
under JAX's names, including those of older versions; the same applies to modules in the script's
folder, and to the installed libraries that import JAX. In other programs,

    with shardir_as_jax("training"):
        import jax.numpy as jnp
        import training

has this effect for the imports in the block and inside the module `training`, with its libraries.
For all other code of the process, `jax` remains JAX if it is installed. A name without a
counterpart in shardir raises an error that names the nearest alternative.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.interop.jax_shim.import_block": ("shardir_as_jax",),
    "shardir.interop.jax_shim.internals": ("UncoveredInternal",),
    "shardir.interop.jax_shim.suggestions": ("UncoveredImport", "UncoveredName"),
    "shardir.interop.jax_shim.program": ("Program",),
    "shardir.interop.jax_shim.script_runner": ("run_script",),
    "shardir.interop.jax_shim.jax_config": ("UncoveredSetting",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.interop.jax_shim.import_block import shardir_as_jax as shardir_as_jax
    from shardir.interop.jax_shim.internals import UncoveredInternal as UncoveredInternal
    from shardir.interop.jax_shim.jax_config import UncoveredSetting as UncoveredSetting
    from shardir.interop.jax_shim.program import Program as Program
    from shardir.interop.jax_shim.script_runner import run_script as run_script
    from shardir.interop.jax_shim.suggestions import (
        UncoveredImport as UncoveredImport,
        UncoveredName as UncoveredName,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
