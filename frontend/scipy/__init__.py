"""SciPy's functions on tracers and arrays, with the names of `jax.scipy`.

Input: arrays, tracers and numbers. Output: arrays, or operations in the current trace.
Start with `special.py`, `stats.py` and `linalg.py`, which list the public names;
`special_functions/` and `distributions/` define them.
"""
