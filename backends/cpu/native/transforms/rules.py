"""The operations with a rule in this folder, by the module whose `RULES` defines it."""

from shardir.backends.cpu.native.data import Rule
from shardir.backends.cpu.native.deferred_rules import deferred_rules

MODULES: dict[str, tuple[str, ...]] = {"batches": ("fft",)}

RULES: dict[str, Rule] = deferred_rules("shardir.backends.cpu.native.transforms", MODULES)
