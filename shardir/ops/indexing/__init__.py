"""Gather and scatter; `layout` is the geometry that both share.

Input: tensor types and attributes. Output: operation specifications in `OPS`. Start with
`gather_scatter`.
"""
