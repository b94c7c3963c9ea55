"""Compiled programs: from a traced function to the launch of its program.

Input: a traced function with the shardings of its arguments. Output: `Runnable`, which takes and
returns arrays.
Start at `lowering.py`, which puts a traced function on one mesh; `compilation.py` compiles the
partitioned module, `pass_observers.py` observes the passes, and `runnable.py` runs the program.
`view_launch.py` and `donation.py` are special launches; `nonfinite_check.py` searches the origin of
NaN and infinities.
"""
