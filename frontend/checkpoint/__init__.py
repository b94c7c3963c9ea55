"""Checkpoints: sharded arrays in safetensors files with a checksummed index.

Input: pytrees of arrays. Output: a folder that is replaced atomically; and the arrays again under
another mesh. `index` is the file format, `folder` the atomic replacement, `process_agreement` the
collective errors. Start with `save` and `load`.
"""
