"""Functions with the names of `scipy`."""
