"""Functions with derivative rules of their own."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.transforms.custom_jvp": ("custom_jvp",),
    "shardir.frontend.transforms.custom_rules": ("SymbolicZero",),
    "shardir.frontend.transforms.custom_vjp": ("CustomVJPPrimal", "custom_gradient", "custom_vjp"),
    "shardir.frontend.transforms.linear_call": ("linear_call",),
    "shardir.frontend.transforms.linear_transpose": ("closure_convert",),
    "shardir.frontend.transforms.symbolic_zeros": (
        "custom_vjp_primal_tree_values",
        "zero_from_primal",
    ),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.transforms.custom_jvp import custom_jvp as custom_jvp
    from shardir.frontend.transforms.custom_rules import SymbolicZero as SymbolicZero
    from shardir.frontend.transforms.custom_vjp import (
        CustomVJPPrimal as CustomVJPPrimal,
        custom_gradient as custom_gradient,
        custom_vjp as custom_vjp,
    )
    from shardir.frontend.transforms.linear_call import linear_call as linear_call
    from shardir.frontend.transforms.linear_transpose import closure_convert as closure_convert
    from shardir.frontend.transforms.symbolic_zeros import (
        custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
        zero_from_primal as zero_from_primal,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
