"""Merge the per-device program to one program over the arrays of all devices that share memory.

Input: a per-device program; output: a program over global arrays in which collectives are sums,
transposes and slices. Start with `merge_devices` (the pass) and `merger` (one block); the other
files hold the rules of operations.
"""
