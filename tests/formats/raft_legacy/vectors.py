"""The frames of tests/vectors/farm_frames.txt."""

from pathlib import Path

_FILE = Path(__file__).parents[2] / "vectors" / "farm_frames.txt"


def vectors(kind: str) -> list[tuple[str, bytes]]:
    """(name, bytes) of every vector of a kind: request, response or unpacked."""
    found: list[list[str]] = []
    for line in _FILE.read_text().splitlines():
        if line.startswith("#"):
            continue
        if line.startswith(" "):
            found[-1][2] += line
        else:
            found.append(line.split(" ", 2))
    return [(name, bytes.fromhex(text)) for name, other, text in found if other == kind]


def vector(name: str, kind: str = "request") -> bytes:
    """The first vector of that name and kind."""
    return next(data for other, data in vectors(kind) if other == name)
