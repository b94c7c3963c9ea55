"""Torch functions that emitted programs contain if they use them.

The emitter reads each file as text: a program contains the functions that it calls and their
dependencies. Therefore shardir does not import these files, they do not import shardir, and names
are unique among all of them. Arguments and results are tensors of the element types that the
program states. Start with `integers.py`.
"""
