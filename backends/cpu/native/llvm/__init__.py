"""LLVM: building functions as text, compiling them for this machine, keeping the code on disk."""
