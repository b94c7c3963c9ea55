"""Pytrees: flattening, key paths, prefixes, and the names of `jax.tree_util`.

The implementation uses optree. Input: nested containers. Output: leaves, structures (`PyTreeDef`),
key paths. Start with `tree`.
"""
