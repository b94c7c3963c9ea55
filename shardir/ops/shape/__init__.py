"""Constants and iota, broadcast/reshape/transpose/concatenate/reverse, slices, updates, padding,
roll, with batching and partitioning. Input: tensor types and attributes. Output: operation
specifications in `OPS`. Start with `rearrangements`.
"""
