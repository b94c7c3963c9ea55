"""The stages of a jitted function: wrapped, traced, lowered, compiled."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.dispatch.jit": ("Compiled", "Lowered"),
    "shardir.frontend.dispatch.stages.stages": ("ArgInfo",),
    "shardir.frontend.dispatch.stages.traced": ("CompilerOptions", "Traced", "Wrapped"),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.dispatch.jit import Compiled as Compiled, Lowered as Lowered
    from shardir.frontend.dispatch.stages.stages import ArgInfo as ArgInfo
    from shardir.frontend.dispatch.stages.traced import (
        CompilerOptions as CompilerOptions,
        Traced as Traced,
        Wrapped as Wrapped,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
