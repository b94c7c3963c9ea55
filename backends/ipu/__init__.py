"""Target for IPUs: emits a Poplar program in C++.

Input: a partitioned module (`Emission`). Output: the C++ program, host code that loads and runs it,
and data files. Start with `target.py` and `program.py`; `lowering/` has the rules of all
operations, `codegen/` the writer of C++ statements and expressions, `prepare/` rewrites and checks
before emission, `helpers/` C++ helper functions of emitted programs, and `host_model/` runs emitted
programs on CPUs.
"""

from shardir.backends.ipu.target import TARGET as TARGET
