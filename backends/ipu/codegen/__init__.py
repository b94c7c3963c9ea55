"""Writer of C++: statements and names of tensors (`emitter`), and trees of `popops::expr`.

Input: calls of the lowering rules. Output: lines of C++. Start with `emitter`.
"""
