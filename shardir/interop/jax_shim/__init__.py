"""The JAX shim: runs programs that contain `import jax` on shardir.

`import_block` and `script_runner` are the entry points. `program` replaces `__import__` for the
modules of a program and for the libraries that import JAX (`libraries`, `import_facades`).
`module_facade` looks up names (`renamed`, `stubs`, `partial_evaluation`), `internals` has
placeholders for the internals of JAX that libraries mention, `jax_config` maps settings, and
`suggestions` explains missing names. Start with `program`.
"""
