"""Functions for neural networks, with the names of `jax.nn`."""
