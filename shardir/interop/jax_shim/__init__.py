"""The JAX shim: runs programs that contain `import jax` on shardir.

`import_block` and `script_runner` are the entry points. `program` replaces `__import__` for the
modules of a program, `module_facade` looks up names (`renamed`, `stubs`),
`jax_config` maps settings, and `suggestions` explains missing names. Start with `program`.
"""
