"""Rematerialization in gradients: values that are recomputed and values that are saved."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.transforms.rematerialization": (
        "checkpoint",
        "checkpoint_name",
        "checkpoint_policies",
        "remat",
    ),
    "shardir.frontend.transforms.saved_residuals": ("print_saved_residuals",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.transforms.rematerialization import (
        checkpoint as checkpoint,
        checkpoint_name as checkpoint_name,
        checkpoint_policies as checkpoint_policies,
        remat as remat,
    )
    from shardir.frontend.transforms.saved_residuals import (
        print_saved_residuals as print_saved_residuals,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
