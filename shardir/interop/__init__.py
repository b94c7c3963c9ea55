"""Programs of other libraries. `shardir.interop.jax` needs the extra `jax`.

Input: functions that are written for JAX, or scripts that import JAX. Output: functions of shardir,
or the script's effects. Start with `jax.py` (`from_jax`); `in_place_of_jax/` runs unchanged scripts
on shardir by means of `jax_shim/`.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.interop.in_place_of_jax": (),
    "shardir.interop.jax": (),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.interop import in_place_of_jax as in_place_of_jax, jax as jax
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
