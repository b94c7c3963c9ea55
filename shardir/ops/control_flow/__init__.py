"""`while`, `scan` and `case`, fused loop nests, regions with derivative rules, manual computations, host
callbacks. Input: tensor types and attributes. Output: operation specifications in `OPS`.
"""
