"""The rules of all operations with native kernels, and the layouts that their results prefer.

Most modules of rules are imported on the first use of a rule: a program imports only what it needs.
"""

from collections.abc import Sequence
from importlib import import_module

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Order, Phase, Rule
from shardir.backends.cpu.kernels import elementwise
from shardir.backends.cpu.kernels.conv.convolution import convolution_order, convolution_rule
from shardir.backends.cpu.kernels.gemm.product_dispatch import dot_order, dot_rule
from shardir.backends.cpu.kernels.selection.bool_search import DECIDING_BYTE, with_search
from shardir.ir.module import Op

LAZY_RULES: dict[str, tuple[str, ...]] = {
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
    "linalg.cholesky": ("cholesky",),
    "linalg.lu": ("lu",),
    "linalg.qr": ("qr",),
    "linalg.svd": ("svd", "pinv", "least_squares"),
    "linalg.triangular_solve": ("triangular_solve",),
    "linalg.eigen": ("eigh", "eig"),
    "fft.batches": ("fft",),
    "fused_products.fused_products_rule": ("fused_products",),
}
"""The operations that the table `RULES` of a module lowers, by the module's name in `kernels`."""


def _import_on_call(module: str, name: str) -> Rule:
    def rule(
        op: Op,
        operands: Sequence[BufferView],
        results: Sequence[BufferView],
        context: LoweringContext,
    ) -> Sequence[Phase] | None:
        found: Rule = import_module(f"shardir.backends.cpu.kernels.{module}").RULES[name]
        return found(op, operands, results, context)

    return rule


RULES: dict[str, Rule] = {
    **elementwise.RULES,
    "dot": dot_rule,
    "convolution": convolution_rule,
    **{
        name: _import_on_call(module, name)
        for module, names in LAZY_RULES.items()
        for name in names
    },
}
RULES.update({name: with_search(RULES[name]) for name in DECIDING_BYTE})

LAYOUT_RULES: dict[str, Order] = {"dot": dot_order, "convolution": convolution_order}
