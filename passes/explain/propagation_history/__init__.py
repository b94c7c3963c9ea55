"""The propagation history of one function: which step brought each axis, and what stopped others.

Input: a record of propagation (`passes.propagation.record`). Output: origins and absences of axes,
decisions between factors, and propagation edges. Start with `history`, then `axis_origins`.
"""
