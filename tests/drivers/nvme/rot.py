"""Rot: a bit of a volume's file turns while nobody looks."""

from pathlib import Path


def flip(path: Path, offset: int, bit: int = 4) -> None:
    """Turn a bit (0 to 7) of the byte at `offset`, and nothing beside it: it may be in use."""
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))
