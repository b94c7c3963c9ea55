"""The lowering rules of this package, by operation name."""

from shardir.backends.cpu.kernel_api import Order, Rule
from shardir.backends.cpu.kernels.conv.convolution import convolution_order, convolution_rule
from shardir.backends.cpu.kernels.gemm.dot import dot_order, dot_rule

RULES: dict[str, Rule] = {"dot": dot_rule, "convolution": convolution_rule}
LAYOUTS: dict[str, Order] = {"dot": dot_order, "convolution": convolution_order}
