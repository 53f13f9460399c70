"""What a whole run leaves in the tree: a line of history, the table and the picture of the page."""

import json
from pathlib import Path
from typing import Any

from tests.bench.peers import table
from tests.bench.peers.picture import picture

Row = dict[str, Any]
BEGIN, END = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"
PICTURE = "pictures/peers.svg"  # beside the page


class PageBroken(Exception):
    """The page has no place for what was measured."""


def filled(page: str, body: str) -> str:
    """The page with `body` between its marks, in place of what stood there."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(END) < page.index(BEGIN):
        raise PageBroken(f"the page must have {BEGIN} and, after it, {END}, each once")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{body.strip()}\n{END}{after}"


def body_of(line: Row) -> str:
    """What stands between the marks: when and on what, the picture, tables, and the proofs."""
    machine, found = line["machine"], line["rows"]
    proofs = "\n".join(f"- {proof}" for proof in line["proofs"])
    return (
        f"{line['time']}, commit {line['commit']}: {machine['cores']} cores of "
        f"{machine['model']}.\n\n![Rates of all products]({PICTURE})\n\n{table.text(found)}\n\n"
        f"Counted in the same run:\n\n{proofs}\n"
    )


def write(line: Row, *, history: Path, page: Path) -> None:
    """All three, or none where the page has no place."""
    text = filled(page.read_text(encoding="utf-8"), body_of(line))
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    (page.parent / PICTURE).write_text(picture(line["rows"]), encoding="utf-8")
    page.write_text(text, encoding="utf-8")
