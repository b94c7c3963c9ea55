"""Checkpoints: sharded arrays in safetensors files with a checksummed index.

Input: pytrees of arrays. Output: a folder that is replaced atomically. Loading returns
the arrays, on any mesh. `index` defines the file format, `folder` replaces folders atomically, and
`process_agreement` raises an error of one process in all processes. Start with `save` and `load`.
"""
