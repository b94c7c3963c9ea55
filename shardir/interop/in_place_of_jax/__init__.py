"""In JAX's place: programs that say `import jax`, run by shardir.

The command `shardir as-jax train.py --steps 3` runs a script whose `import jax` finds shardir under
JAX's names, those of older versions included; so do the modules that lie beside it. In a program
of one's own,

    with shardir_as_jax("training"):
        import jax.numpy as jnp
        import training

does so for the imports of this block, and inside of the module `training`. Nobody else is
concerned: JAX itself, if it is installed, stays `jax` for all other code of the process. A name
that shardir does not have is an error which says what is nearest.
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
"""Where each public name is defined."""

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
