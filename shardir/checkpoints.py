"""Arrays in files: written by all processes together, read under any mesh."""

from typing import TYPE_CHECKING

from shardir._lazy import lazy_names

TABLE = {
    "shardir.frontend.restoring": ("exists", "load"),
    "shardir.frontend.saving": ("save",),
}
"""Where each public name is defined."""

if TYPE_CHECKING:
    from shardir.frontend.restoring import exists as exists, load as load
    from shardir.frontend.saving import save as save
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
