"""Functions where users of SciPy expect them."""
