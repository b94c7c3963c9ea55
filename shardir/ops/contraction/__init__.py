"""Contractions: `dot`, and convolution with its factors, gradients, batching and partitioning.

Input: tensor types and attributes. Output: operation specifications in `OPS`. Start with `dot`.
"""
