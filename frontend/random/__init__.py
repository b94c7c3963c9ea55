"""Random numbers from explicit keys, equal to those of `jax.random` for the same keys.

A key is an immutable array of element type `key`. The numbers depend only on the key and the shape,
never on shardings. The algorithms are JAX's (threefry2x32 of Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", SC'11), bit for bit for integers and uniform numbers.
Input: keys, shapes and parameters of distributions. Output: arrays. Start with `keys.py`, then
`uniform_numbers.py`.
"""
