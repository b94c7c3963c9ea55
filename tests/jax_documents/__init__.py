"""Runs documents that were written for JAX, unmodified, under the JAX shim.

    python -m tests.jax_documents FOLDER

A document is a notebook, a Markdown page, or either of them saved as text: prose, code, and the
output of the code. Each cell runs under `shardir.interop.in_place_of_jax`, and its output is
compared with the output in the document. Documents are never part of this repository.
"""
