"""Indexed reads and updates:

`x[...]`, `x.at[...]`, take, put, nonzero, masks. Input: an array and an index expression. Output:
slice, dynamic_slice, gather, dynamic_update_slice, scatter or select. Start with `subscripts`
(parsing), then `getitem` and `updates`.
"""
