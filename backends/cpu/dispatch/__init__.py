"""Dispatch: call native programs from Python.

Input: Python arguments of a compiled function. Output: arrays. Start reading in `call_cache.py`,
which runs repeated calls without Python code, then `launch.py` (one call of a program) and
`entry_point.py` (the built-in functions over native code). `backends.numpy.threads` runs the
phases.
"""
