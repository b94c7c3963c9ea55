"""Kernels of elementwise operations, reductions, and fused groups of them.

Input: an operation and the views of its operands and results. Output: phases of loop kernels. Start
reading in `rules.py`; `loop_body.py` turns an operation into steps, `elementwise.py` and
`reduction.py` choose the loop structure, `*_kernel.py` and `*_reduction.py` emit the code.
"""

from shardir.backends.cpu.kernels.elementwise.rules import RULES as RULES, has_kernel as has_kernel
