"""JAX's own test files, run against shardir from a checkout that lies elsewhere.

    python -m tests.jax_suite CHECKOUT batching lax_vmap nn

A test file is executed unmodified, with an `import` of its own under which `jax` means the library
under test. What a test wants from JAX's internals cannot be had from another library, so the
tests that count are those that pass on JAX itself when JAX is seen through its public names alone
(`public_jax.py`). Nothing of JAX's tests is kept here; docs/jax_tests.md holds the results.
"""
