"""Pages of the documentation site that are generated from the code.

Input: the public modules of shardir, and the parsers of the command `shardir`. Output: Markdown
files in `docs/reference/`, which Sphinx renders. Start with `write_pages`, which `docs/conf.py`
calls.
"""
