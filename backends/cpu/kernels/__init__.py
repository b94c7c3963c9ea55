"""Kernels of the native CPU backend.

Input: an operation and views of its operands and results. Output: phases, or None if NumPy has to
run the operation. `rules` joins the rule tables, `contraction_rules` and `movement_rules` list the
rules of several folders, `lazy_rules` imports a rule on its first use, and `threefry` contains the
kernels of random bits. Start with `rules`.
"""
