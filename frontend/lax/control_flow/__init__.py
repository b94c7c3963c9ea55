"""Loops, branches, custom solves, and tracing of user functions as blocks.

Input: functions and containers of operands. Output: scan, while and case operations with blocks.
Start with `body_tracing`, then `loops`.
"""
