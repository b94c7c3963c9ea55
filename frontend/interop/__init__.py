"""Programs of other libraries as programs of ours. `from_jax` is the way in from JAX.

Nothing here is imported before it is asked for, because it needs the extra `jax`.
"""
