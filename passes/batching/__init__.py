"""Vectorization (vmap): transform a function to one over a batch of arguments.

Input: a function, the batched parameters and the batch size; output: a function with a leading
batch dimension. Start with `vectorize`, then `batcher` (one block); the other files are rules of
control flow, regions, collectives and manual computations.
"""
