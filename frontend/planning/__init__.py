"""Automatic sharding: `plan` finds shardings of the arguments of a function.

Input: a function, its arguments as arrays or structs, a mesh, and possibly a machine and a memory
limit. Output: a `Plan` with shardings for `jit`, and the predicted time, memory and communication.
Start reading in `planning.py`; `plan.py` has the class `Plan`, `plan_text.py` its text, and
`export.py` its forms for JAX and StableHLO.
"""
