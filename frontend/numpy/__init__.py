"""NumPy's functions on tracers and arrays, in one module per family.

The functions have the names and arguments of `jax.numpy` and follow NumPy's rules, with JAX's type
promotion. Input: arrays, tracers, numbers and nested lists. Output: arrays, or operations in the
current trace. Start with `api.py`, which lists the public names, then `elementwise/arithmetic.py`.
"""
