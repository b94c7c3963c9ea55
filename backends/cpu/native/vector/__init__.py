"""Elementwise mathematics as vector code: a library of functions, and what is inlined."""
