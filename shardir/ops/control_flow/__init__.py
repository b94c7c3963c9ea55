"""Control flow (`while`, `scan` and `case`), fused loop nests, regions with derivative rules, manual
computations, and host callbacks.

Input: tensor types, attributes and blocks. Output: operation specifications in `OPS`.
"""
