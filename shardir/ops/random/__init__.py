"""Random bits as functions of keys; `threefry` is the hash.

Input: tensor types and attributes. Output: operation specifications in `OPS`. Start with
`random_bits`.
"""
