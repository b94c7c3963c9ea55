"""The operations with a rule in this folder, by the module whose `RULES` defines it."""

from shardir.backends.cpu.native.data import Rule
from shardir.backends.cpu.native.deferred_rules import deferred_rules

MODULES: dict[str, tuple[str, ...]] = {
    "definite": ("cholesky",),
    "factoring": ("lu",),
    "reflecting": ("qr",),
    "singular": ("svd", "pinv", "least_squares"),
    "solving": ("triangular_solve",),
    "spectra": ("eigh", "eig"),
}

RULES: dict[str, Rule] = deferred_rules("shardir.backends.cpu.native.matrices", MODULES)
