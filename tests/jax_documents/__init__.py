"""Documents written for JAX, run as they stand with shardir in JAX's place.

    python -m tests.jax_documents FOLDER

A document is a notebook, a page of Markdown, or either of them saved as text: prose, code, and what
the code has shown. Its code is found and run cell by cell under
`shardir.interop.in_place_of_jax`, and what a cell prints is held against what stands below it.
Documents are never part of this repository.
"""
