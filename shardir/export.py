"""Programs as artefacts in StableHLO text, and as bytes."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.dispatch.stages.export": (
        "Exported",
        "default_export_platform",
        "deserialize",
        "export",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.dispatch.stages.export import (
        Exported as Exported,
        default_export_platform as default_export_platform,
        deserialize as deserialize,
        export as export,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
