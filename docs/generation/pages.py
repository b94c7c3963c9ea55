"""The generated pages as files."""

from pathlib import Path

from docs.generation.api_reference import module_page, module_summary
from docs.generation.command_reference import command_page
from docs.generation.public_names import public_modules


def write_pages(folder: Path) -> None:
    """Write all generated pages into a folder; a page that has not changed keeps its time, so that
    Sphinx does not read it again.
    """
    pages = {f"api/{module}.md": module_page(module) for module in public_modules()}
    pages["api/index.md"] = _index_page()
    pages["command_line.md"] = command_page()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    for path in folder.rglob("*.md"):
        if str(path.relative_to(folder).as_posix()) not in pages:
            path.unlink()


def _index_page() -> str:
    """Return the page that lists the public modules."""
    modules = public_modules()
    rows = [f"| [{module}]({module}.md) | {module_summary(module)} |" for module in modules]
    return "\n".join(
        [
            "# API reference",
            "",
            "These are the public modules. Names and semantics follow JAX 0.10.2 where JAX has",
            "the name; [From JAX](../../from-jax.md) states the differences.",
            "",
            "| module | contents |",
            "| --- | --- |",
            *rows,
            "",
            "```{toctree}",
            ":hidden:",
            "",
            *modules,
            "```",
            "",
        ]
    )
