"""Programs of other libraries. `shardir.interop.jax` needs the extra `jax`."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.interop.in_place_of_jax": (),
    "shardir.interop.jax": (),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.interop import in_place_of_jax as in_place_of_jax, jax as jax
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
