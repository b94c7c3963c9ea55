"""Control flow, fused loop nests, regions with derivative rules, manual computations, callbacks.

Input: tensor types, attributes and blocks. Output: operation specifications in `OPS`. Start with
`control_flow`.
"""
