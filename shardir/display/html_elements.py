"""HTML for notebooks: elements with escaped text, and the style sheet that all outputs share.

Outputs are self-contained: they need no network, no script and no font. Colors follow the theme of
JupyterLab, VS Code, Colab and Sphinx's themes, and elsewhere the light or dark preference of the
browser. An output has its own background, because the theme of another notebook may differ from
this preference. No color stands alone: a label states the name of its axis.
"""

from collections.abc import Iterable, Iterator
from html import escape

from shardir.display.axis_colors import DARK_BACKGROUNDS, LIGHT_BACKGROUNDS, NUM_COLORS


class Html(str):
    """A string of HTML, which is not escaped again."""

    __slots__ = ()


def tag(name: str, *children: str | Iterable[str], **attributes: str | None) -> Html:
    """Return an element. Children that are not `Html` are escaped, and so are attributes.

    An attribute is omitted if it is `None`; `class_` stands for `class`.
    """
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    end = "" if name == "br" else f"</{name}>"
    return Html(f"<{name}{attributes_text}>{join(children)}{end}")


def join(children: Iterable[str | Iterable[str]]) -> Html:
    """Return the children one after another, escaped unless they are `Html`."""
    return Html(
        "".join(
            child
            if isinstance(child, Html)
            else escape(child, quote=False)
            if isinstance(child, str)
            else join(child)
            for child in children
        )
    )


def label(text: str, color: int) -> Html:
    """Return a label, such as the name of an axis, on the color of this number."""
    return tag("span", text, class_=f"sd-c sd-c{color % NUM_COLORS}")


def table(header: Iterable[str], rows: Iterable[Iterable[str]], *, left: int = 0) -> Html:
    """Return a table; its last `left` columns are aligned left, and the others right."""

    def cells(name: str, row: Iterable[str]) -> Html:
        texts = list(row)
        return tag(
            "tr",
            [
                tag(name, text, class_="sd-l" if column >= len(texts) - left else None)
                for column, text in enumerate(texts)
            ],
        )

    return tag(
        "table", tag("thead", cells("th", header)), tag("tbody", [cells("td", r) for r in rows])
    )


def output(*children: str | Iterable[str]) -> Html:
    """Return a complete output for a notebook: the children with the style sheet."""
    return tag("div", tag("style", Html(STYLE)), *children, class_="sd")


def _colors(backgrounds: Iterable[str]) -> str:
    return "".join(f"--sd{number}:{color};" for number, color in enumerate(backgrounds))


_LIGHT = (
    f"{_colors(LIGHT_BACKGROUNDS)}--sd-page:#ffffff;--sd-text:#1b1f24;--sd-dim:#59636e;"
    "--sd-line:#c4ccd4;--sd-key:#0550ae;color-scheme:light"
)
_DARK = (
    f"{_colors(DARK_BACKGROUNDS)}--sd-page:#12161b;--sd-text:#e6edf3;--sd-dim:#9da7b3;"
    "--sd-line:#4a535d;--sd-key:#79c0ff;color-scheme:dark"
)


def _theme_rules() -> Iterator[str]:
    """Yield the rules for the elements by which pages state a light or a dark theme."""
    for name, is_light, colors in (("light", "true", _LIGHT), ("dark", "false", _DARK)):
        pages = (
            f"[data-jp-theme-light={is_light}]",  # JupyterLab, and pages that nbconvert writes.
            f".vscode-{name}",
            f"html[theme={name}]",  # Colab.
            f"[data-theme={name}]",  # Furo and other themes of Sphinx.
        )
        yield f"{','.join(f'{page} .sd' for page in pages)}{{{colors}}}"


_RULES = (
    f".sd{{{_LIGHT};color:var(--sd-text);background:var(--sd-page);padding:4px;font-size:13px;"
    "overflow-x:auto;line-height:1.45}"
    f"@media (prefers-color-scheme:dark){{.sd{{{_DARK}}}}}{''.join(_theme_rules())}"
    ".sd pre,.sd .sd-code{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "font-size:12px;white-space:pre;margin:0;background:none;color:inherit;text-align:left}"
    ".sd .sd-code,.sd pre{overflow:auto;max-height:42em}"
    ".sd details{margin:0;padding:0}.sd summary{cursor:pointer;list-style-position:outside;"
    "margin-left:1.2em}.sd details>.sd-b{margin-left:1.2em;border-left:1px solid var(--sd-line)}"
    ".sd details:not([open])>summary::after{content:' ... }';color:var(--sd-dim)}"
    ".sd .sd-d{color:var(--sd-dim)}.sd .sd-k{color:var(--sd-key);font-weight:600}"
    ".sd .sd-n{user-select:none;color:var(--sd-dim)}"
    ".sd .sd-c{border-radius:3px;padding:0 3px;color:var(--sd-text)}"
    + "".join(f".sd .sd-c{n}{{background:var(--sd{n})}}" for n in range(NUM_COLORS))
    + ".sd table{border-collapse:collapse;margin:4px 0;color:inherit;background:none;"
    "font-size:inherit}"
    # The rows of notebooks have backgrounds of the notebook's theme.
    ".sd tr{background:none!important}"
    ".sd th,.sd td{padding:2px 8px;text-align:right;border:0;border-bottom:1px solid "
    "var(--sd-line);background:none;white-space:nowrap;color:inherit}"
    ".sd th{font-weight:600}.sd .sd-l{text-align:left}"
    ".sd .sd-grid td{border:1px solid var(--sd-dim);text-align:center;min-width:4em;height:2em}"
    ".sd .sd-grid th{border:0;text-align:center}"
    ".sd .sd-row{display:flex;flex-wrap:wrap;gap:12px}"
    ".sd .sd-bar{display:inline-block;width:60px;height:.7em;border:1px solid var(--sd-line)}"
    ".sd .sd-bar span{display:block;height:100%;background:var(--sd-key)}"
)

STYLE = _RULES.replace(".sd ", ".sd.sd.sd ")
"""The style sheet. All its rules are limited to outputs of this package.

The selectors repeat the class, because JupyterLab aligns and pads the tables of outputs with
selectors of two classes.
"""
