"""The subject of a row of a table, and of an act."""

from dataclasses import dataclass

NOBODY = -1


@dataclass(frozen=True, slots=True, order=True)
class About:
    """What an act is about: a node, one of its processes, a shard, and perhaps a second node, by
    their numbers in the site file. The subject of a table's row is one, too."""

    node: int = NOBODY
    process: str = ""
    shard: int = NOBODY
    other: int = NOBODY
