"""`profile`: the time of each operation of a function relative to the limits of the machine.

Input: a function and arguments. Output: a `Profile` with a table (`table`) and a Chrome trace
(`trace_events`). Start with `profile`.
"""
