"""The operations with a rule in this folder, by the module whose `RULES` defines it."""

from shardir.backends.cpu.kernel_api import Rule
from shardir.backends.cpu.kernels.lazy_rules import lazy_rules

RULE_MODULES: dict[str, tuple[str, ...]] = {"fft.batches": ("fft",)}

RULES: dict[str, Rule] = lazy_rules(RULE_MODULES)
