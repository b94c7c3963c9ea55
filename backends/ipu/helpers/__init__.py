"""C++ helper functions that emitted programs contain if they use them.

Input: names of helpers. Output: C++ text. `helper_table` contains the table and resolves
dependencies. Start with `helper_table`.
"""
