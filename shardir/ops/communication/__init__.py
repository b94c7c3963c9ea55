"""Collectives and their gradients, asynchronous collectives, sharding annotations.

Input: tensor types and attributes. Output: operation specifications in `OPS`. Start with
`collectives`.
"""
