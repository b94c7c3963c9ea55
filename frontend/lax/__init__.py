"""The namespace `shardir.lax`: functions that correspond closely to operations of the IR.

Input: arrays, tracers, static attributes and Python functions for control flow. Output: arrays, or
operations in the current trace. Start with `api.py`, which lists the public names, then
`elementwise.py` (one operation per function) and `control_flow/` (functions with blocks).
"""
