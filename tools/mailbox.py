"""Turns the changelogs of a Debian machine into an mbox: real mail to import, without a network.

    python tools/mailbox.py changes.mbox [--folder /usr/share/doc] [--count 10000]

Each entry of a changelog becomes a mail from whoever signed it, at the time it was signed. The
versions of a package are a thread: each answers the one before. Mails are in order of time, and the
list they claim to come from, which becomes their room, is that of the package's first letter.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple

_HEAD = re.compile(r"(?P<package>[a-z0-9][a-z0-9.+-]+) \((?P<version>[^()\s]+)\) (?P<rest>.*)$")
_TAIL = re.compile(r" -- (?P<author>[^<]*<[^<>]*>)  ?(?P<date>.+)$")
TEXT_SIZE_MAX = 64 << 20


class Change(NamedTuple):
    """One version of one package."""

    time: datetime
    package: str
    version: str
    author: str
    subject: str
    text: str


def changes(text: str) -> Iterator[Change]:
    """The entries of one changelog in Debian's form, newest first; what does not fit is dropped."""
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        found, tail = _HEAD.match(line), _TAIL.match(line)
        if found:
            head, lines = found, []
        elif tail and head:
            try:
                time = parsedate_to_datetime(tail["date"].strip())
            except ValueError:
                head = None
                continue
            if time.tzinfo is None:
                time = time.replace(tzinfo=UTC)
            body = "\n".join(lines).strip("\n")
            yield Change(
                time, head["package"], head["version"], tail["author"], line_of(head), body
            )
            head = None
        elif head:
            lines.append(line.rstrip())


def line_of(head: re.Match[str]) -> str:
    return f"{head['package']} ({head['version']}) {head['rest']}"


def read_all(folder: Path) -> dict[tuple[str, str], Change]:
    """(package, version) -> entry: packages of one source share a changelog."""
    found: dict[tuple[str, str], Change] = {}
    for path in sorted(folder.glob("*/changelog*.gz")):
        try:
            with gzip.open(path) as file:
                text = file.read(TEXT_SIZE_MAX).decode(errors="replace")
        except (OSError, EOFError, zlib.error) as error:
            print(f"mailbox: {path}: {error}", file=sys.stderr)
            continue
        for change in changes(text):
            found.setdefault((change.package, change.version), change)
    return found


def mails(found: dict[tuple[str, str], Change]) -> Iterator[str]:
    """Each entry as a mail with its separator line, in order of time."""
    newest: dict[str, str] = {}
    for change in sorted(found.values(), key=lambda change: (change.time, change.package)):
        name = f"{change.package}.{change.version}@changelog".replace("~", "-")
        letter = change.package[:4] if change.package.startswith("lib") else change.package[0]
        headers = [
            f"From changelog {change.time.astimezone(UTC):%a %b %d %H:%M:%S %Y}",
            f"From: {change.author}",
            f"Date: {change.time:%a, %d %b %Y %H:%M:%S %z}",
            f"Subject: {change.subject}",
            f"Message-ID: <{name}>",
            f"List-Id: <changes-{letter}.debian.local>",
            "MIME-Version: 1.0",
            "Content-Type: text/plain; charset=utf-8",
            "Content-Transfer-Encoding: 8bit",
        ]
        if change.package in newest:
            headers.append(f"In-Reply-To: <{newest[change.package]}>")
        newest[change.package] = name
        body = re.sub(r"^(>*From )", r">\1", change.text, flags=re.MULTILINE)
        yield "\n".join(headers) + f"\n\n{body}\n\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Turns Debian changelogs into an mbox.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("/usr/share/doc"))
    parser.add_argument("--count", type=int, default=0, help="at most so many mails, the newest")
    chosen = parser.parse_args(arguments)
    written = list(mails(read_all(chosen.folder)))
    if chosen.count:
        written = written[-chosen.count :]
    if not written:
        print(f"mailbox: no changelogs in {chosen.folder}", file=sys.stderr)
        return 1
    chosen.target.write_text("".join(written), encoding="utf-8")
    print(f"{len(written)} mails, {chosen.target.stat().st_size} bytes in {chosen.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
