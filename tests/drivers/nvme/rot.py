"""Rot: a bit of a volume's file turns while nobody looks."""

from pathlib import Path


def flip(path: Path, offset: int) -> None:
    """Turn one bit of the byte at `offset`, and nothing beside it: its volume may be in use."""
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))
