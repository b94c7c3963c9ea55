"""Sorts, searches in sorted vectors, unique values, set operations.

Input: arrays, keys, a static `size` inside of traces. Output: sort and gather operations; concrete
operands are compressed by native code. Start with `sort_functions`.
"""
