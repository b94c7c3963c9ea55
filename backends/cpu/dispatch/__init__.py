"""Dispatch: call native programs from Python.

Input: phases, and the arrays of a call. Output: functions of addresses or arrays. Start reading in
`launch.py` (programs as functions of arrays), then `program_table.py` (functions of addresses) and
`entry_point.py` (how Python calls generated code). The native tier of dispatch is
`backends/native.py`; `threads/` runs the phases.
"""
