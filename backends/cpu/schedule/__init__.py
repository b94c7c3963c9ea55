"""The scheduler: lower a program over unsharded arrays to phases, and assign buffers to memory.

Input: a function of the IR, and the rules of its operations. Output: a `Schedule` of phases, loops,
branches and NumPy calls, with slots and offsets. Start reading in `function_lowering.py` (views and
work items), then `arena.py` (memory planning) and `build.py` (rules to phases).
"""
