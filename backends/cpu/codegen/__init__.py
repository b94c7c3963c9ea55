"""Code generation: build LLVM IR as text, compile it for this host, cache the object code on disk.

Input: the text of LLVM modules. Output: addresses of native functions. Start reading in
`llvm_text.py`, the builder that all kernels use, then `compiler.py`.
"""
