"""Functions that move elements without arithmetic: reshapes, transpositions, concatenation, splits,
padding, repetition, rolls, bit views. Input: arrays and static sizes. Output: reshape, transpose,
concatenate, slice, pad, broadcast, bitcast. Start with `reshaping`.
"""
