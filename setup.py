"""Build the optional C extension; everything else is in `pyproject.toml`.

Without a C compiler, and on free-threaded builds of Python, whose objects the extension does not
lock, the package is installed without it: Python code then runs every call.
"""

import sysconfig

import numpy as np
from setuptools import Extension, setup

extensions = [
    Extension(
        "shardir.backends._native",
        ["backends/_native.c"],
        include_dirs=[np.get_include()],
        extra_compile_args=["-std=c11", "-O3"],
        optional=True,
    )
]
setup(ext_modules=[] if sysconfig.get_config_var("Py_GIL_DISABLED") else extensions)
