"""Placeholder for `jax.scipy.optimize`: importing it raises an error that names the alternative."""

from shardir._lazy import missing_module

raise missing_module(__name__)
