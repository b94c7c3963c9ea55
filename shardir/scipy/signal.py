"""Placeholder for `jax.scipy.signal`: importing it raises an error that names the alternative."""

from shardir._imports.lazy_names import missing_module

raise missing_module(__name__)
