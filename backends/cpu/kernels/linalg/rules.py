"""The operations with a rule in this folder, by the module whose `RULES` defines it."""

from shardir.backends.cpu.kernel_api import Rule
from shardir.backends.cpu.kernels.lazy_rules import lazy_rules

RULE_MODULES: dict[str, tuple[str, ...]] = {
    "definite": ("cholesky",),
    "factoring": ("lu",),
    "reflecting": ("qr",),
    "singular": ("svd", "pinv", "least_squares"),
    "solving": ("triangular_solve",),
    "spectra": ("eigh", "eig"),
}

RULES: dict[str, Rule] = lazy_rules("shardir.backends.cpu.kernels.linalg", RULE_MODULES)
