"""NumPy's functions on tracers and arrays, in one module per family.

The functions have the names and arguments of `jax.numpy` and follow NumPy's rules, with JAX's type
promotion.
"""
