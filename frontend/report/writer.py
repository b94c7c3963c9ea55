"""The HTML file of a report: page, style sheet, script and compressed data in one file.

The file needs no network and no other file. Its data is the JSON of `records_json`, compressed with
gzip and written in base64 in the element `shardir-report`; small reports are the same.
"""

import base64
import gzip
import html
import re
from functools import cache
from importlib.resources import files

from shardir.frontend.report.records import ReportData
from shardir.frontend.report.records_json import ReportError, to_json

DATA_ID = "shardir-report"
COMPRESSION_LEVEL = 8
"""For a training step of 96 layers, level 9 takes a fifth longer and saves 0.5 % of the bytes."""
_DATA = re.compile(rf'<script type="application/gzip" id="{DATA_ID}">([^<]*)</script>')


def to_html(data: ReportData) -> str:
    """Return the page of a report, with the same bytes for the same data."""
    packed = gzip.compress(to_json(data).encode("ascii"), COMPRESSION_LEVEL, mtime=0)
    # The header of gzip names the operating system in this byte; 255 states none.
    packed = packed[:9] + b"\xff" + packed[10:]
    parts = {
        "{{TITLE}}": html.escape(f"{data.name} - shardir report"),
        "{{STYLE}}": _asset("report.css"),
        "{{SCRIPT}}": _asset("report.js").replace("</script", "<\\/script"),
        "{{DATA_ID}}": DATA_ID,
        "{{DATA}}": base64.b64encode(packed).decode("ascii"),
    }
    pattern = re.compile("|".join(map(re.escape, parts)))
    return pattern.sub(lambda match: parts[match[0]], _asset("report.html"))


def json_of_page(text: str, name: str) -> str:
    """Return the JSON inside of a page; raises `ReportError` if the page is not of a report."""
    found = _DATA.search(text)
    if found is None:
        raise ReportError(f'{name} is not a report: it has no element "{DATA_ID}"')
    try:
        return gzip.decompress(base64.b64decode(found[1], validate=True)).decode("ascii")
    except (ValueError, OSError, EOFError) as error:
        raise ReportError(f"{name} is not a report: its data is damaged ({error})") from None


@cache
def _asset(name: str) -> str:
    """Return a file that the package contains beside its modules."""
    return files("shardir.frontend.report").joinpath(name).read_text(encoding="utf-8")
