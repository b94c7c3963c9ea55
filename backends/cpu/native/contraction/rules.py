"""The lowering rules of this package, by operation name."""

from shardir.backends.cpu.native.contraction.convolution import (
    convolution_order,
    convolution_rule,
)
from shardir.backends.cpu.native.contraction.dot import dot_order, dot_rule
from shardir.backends.cpu.native.data import Order, Rule

RULES: dict[str, Rule] = {"dot": dot_rule, "convolution": convolution_rule}
LAYOUTS: dict[str, Order] = {"dot": dot_order, "convolution": convolution_order}
