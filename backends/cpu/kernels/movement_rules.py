"""The operations of the data movement, scan, selection, pooling and sort kernels, by the module
whose `RULES` lowers them."""

from shardir.backends.cpu.kernel_api import Rule
from shardir.backends.cpu.kernels.lazy_rules import lazy_rules

RULE_MODULES: dict[str, tuple[str, ...]] = {
    "data_movement.view_rules": (
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
    "data_movement.gather": ("dynamic_slice", "dynamic_update_slice", "gather"),
    "data_movement.scatter": ("scatter",),
    "scan.cumulative": ("cumsum", "cumprod", "cummax", "cummin"),
    "selection.argminmax": ("argmax", "argmin"),
    "threefry": (
        "random_bits",
        "random_bits_at",
        "random_split",
        "random_split_at",
        "random_fold_in",
        "random_hash",
    ),
    "pooling.reduce_window": ("reduce_window",),
    "pooling.select_and_scatter": ("select_and_scatter",),
    "sort.sort_rules": ("sort", "top_k"),
}

RULES: dict[str, Rule] = lazy_rules(RULE_MODULES)
"""Phases for operands and results with any strides."""
