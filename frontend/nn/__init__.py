"""Functions for neural networks, with the names of `jax.nn`.

Input: arrays, tracers, and keys for initializers. Output: arrays, or operations in the current
trace. Start with `api.py`, which lists the public names.
"""
