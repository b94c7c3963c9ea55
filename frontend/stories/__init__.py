"""Story files: `.ir` files that show a program after each step of a pipeline, as tests of passes.

Input: story files, or a program before and after a pass. Output: errors with the difference, and
updated files. `story_syntax` splits a text into sections and imports nothing heavy,
`pipeline_check` compares a pipeline with a program, `pytest_plugin` collects story files in pytest.
Start with `story_files`.
"""
