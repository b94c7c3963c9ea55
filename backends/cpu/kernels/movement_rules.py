"""The operations of the data movement kernels, by the module whose `RULES` lowers them."""

from shardir.backends.cpu.kernel_api import Rule
from shardir.backends.cpu.kernels.lazy_rules import lazy_rules

RULE_MODULES: dict[str, tuple[str, ...]] = {
    "arranging": (
        "broadcast",
        "transpose",
        "reshape",
        "slice",
        "reverse",
        "concatenate",
        "roll",
        "pad",
        "bitcast",
    ),
    "lookup": ("dynamic_slice", "dynamic_update_slice", "gather"),
    "scattering": ("scatter",),
    "running": ("cumsum", "cumprod", "cummax", "cummin"),
    "extremes": ("argmax", "argmin"),
    "hashing": (
        "random_bits",
        "random_bits_at",
        "random_split",
        "random_split_at",
        "random_fold_in",
        "random_hash",
    ),
    "windows": ("reduce_window",),
    "choosing": ("select_and_scatter",),
    "sorting": ("sort", "top_k"),
}

RULES: dict[str, Rule] = lazy_rules("shardir.backends.cpu.kernels.data_movement", RULE_MODULES)
"""Phases for operands and results with any strides."""
