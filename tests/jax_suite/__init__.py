"""Runs JAX's own test files against shardir, from a checkout outside this repository.

    python -m tests.jax_suite CHECKOUT batching lax_vmap nn

A test file is executed unmodified, with an `import` that returns the library under test for `jax`.
No other library has the internals of JAX, so that the counted tests are those that pass on JAX
itself when only its public names are visible (`public_jax.py`). This repository contains nothing of
JAX's tests; docs/jax_tests.md has the results.
"""
