"""Elementwise operations, bitcast; their NumPy semantics (`numerics`, `special`); `term` for vjp
formulas. Input: tensor types and attributes. Output: operation specifications in `OPS`. Start with
`elementwise`.
"""
