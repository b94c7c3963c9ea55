"""Representations of programs and reports in a REPL, a terminal and a notebook.

Input: operations, modules, and the text of tables. Output: abbreviated text for `repr`,
self-contained HTML for notebooks, and formatted byte counts.
Start at `representation.py` (text); `program_html.py` builds the HTML of a program from the
elements in `html_elements.py`, `axis_colors.py` colors mesh axes, and `byte_sizes.py` formats byte
counts. `compilation_progress.py` reports the progress of compilations to a callback.
"""
