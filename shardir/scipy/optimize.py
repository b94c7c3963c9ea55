"""What is nearest to `jax.scipy.optimize`: importing this tells."""

from shardir._lazy import missing_module

raise missing_module(__name__)
