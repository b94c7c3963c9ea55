"""Imports of the package: lazy public modules, lazy imports, and the check of the interpreter.

Input: the tables of public names in `shardir/__init__.py` and the other public modules.
Output: their `__getattr__` and `__dir__` (PEP 562), which import a name on first access.
Start at `lazy_names.py`; `lazy_import.py` imports other modules on first access, and
`subinterpreters.py` refuses interpreters that NumPy does not support.
"""
