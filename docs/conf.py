"""The documentation site: `make docs` builds it into `build/docs`.

The pages of `docs/` are read as they stand; `docs/generation` writes the reference pages into
`docs/reference/` before each build.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

# These imports need the path of the repository, which Sphinx does not add.
from docs.generation.api_reference import class_names  # noqa: E402
from docs.generation.pages import write_pages  # noqa: E402
from shardir import __version__  # noqa: E402
from shardir.text.pygments_lexer import IrLexer  # noqa: E402

project = "shardir"
author = "the authors of shardir"
version = release = __version__

extensions = ["myst_nb"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["emitted", "generation"]

# A test runs the tutorial and compares its outputs, so the site shows the stored ones.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

language = "en"
smartquotes = False
highlight_language = "text"
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["layout.css"]
html_title = f"shardir {version}"
html_copy_source = False
html_show_copyright = False

IR_TEXT = re.compile(r"^(mesh|func|spmd func) @", re.MULTILINE)


def highlight_ir(app: Sphinx, document: nodes.document) -> None:
    """Highlight blocks of text that contain a program."""
    for block in document.findall(nodes.literal_block):
        if block.get("language") == "text" and IR_TEXT.search(block.astext()):
            block["language"] = "shardir"


def resolve_annotations(app: Sphinx, document: nodes.document) -> None:
    """Refer to the first public name of each class in annotations, which state its last part.

    Sphinx would search all names for each annotation, and find several for a name such as `Mesh`.
    """
    names = class_names()
    for reference in [*document.findall(addnodes.pending_xref)]:
        if reference.get("refdomain") == "py" and reference.hasattr("refspecific"):
            if (target := names.get(reference["reftarget"])) is not None:
                reference["reftarget"] = target
                del reference["refspecific"]
            else:
                reference.replace_self(reference.children)


def setup(app: Sphinx) -> None:
    """Write the reference pages before Sphinx looks for source files."""
    app.add_lexer("shardir", IrLexer)
    app.connect("builder-inited", lambda app: write_pages(DOCS / "reference"))
    app.connect("doctree-read", highlight_ir)
    app.connect("doctree-read", resolve_annotations)
