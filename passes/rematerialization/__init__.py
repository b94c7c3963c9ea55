"""Rematerialization: compute values twice so that a program fits into a memory budget.

Input and output: the program of each device. `remat` is the pass, start there; `eviction` decides
which values are freed and computed again, and `recomputation` writes the repeated operations.
"""
