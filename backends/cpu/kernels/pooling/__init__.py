"""`reduce_window` and `select_and_scatter` (the gradient of max pooling).

Input: strided views and window attributes. Output: phases. Start with `reduce_window`.
"""
