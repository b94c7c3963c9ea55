"""Reductions, argmax, cumulative scans, windows (pooling), select-and-scatter, sort and top-k.

Input: tensor types and attributes. Output: operation specifications in `OPS`. Start with
`reduce`.
"""
