"""Optimizers as pairs of pure functions on containers of arrays.

`init(params)` returns a state, `update(gradients, state, params)` returns updates and the next
state, and `apply_updates` adds updates to parameters. All of these are containers of arrays, which
can be traced, batched, differentiated and sharded; optimizers are chains of gradient
transformations. Start with `optimizers.py`, then `transformations.py`.
"""
