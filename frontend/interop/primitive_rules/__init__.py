"""The translation rules of JAX's primitives.

Input: an equation of a jaxpr with tracers as operands (`registry.Equation`). Output: the tracers of
its results. `registry.py` declares the decorators; each other module registers the rules of one
family of primitives when it is imported. Start reading in `registry.py`, then `elementwise.py`.
"""
