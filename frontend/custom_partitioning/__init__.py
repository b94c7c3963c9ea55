"""`custom_partitioning`: the user states the program that each device runs for a function.

A call inside of a trace becomes an operation with a factor rule; the pass `partition` requests the
program of a device when the shardings are known. Start with `custom_partitioning.py`.
"""
