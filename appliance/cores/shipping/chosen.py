"""Whom the farm has chosen to ship a shard, as far as it bears on who claims."""

from dataclasses import dataclass

NOBODY = -1


@dataclass(slots=True)
class Chosen:
    """`node`: the newest valid choice; NOBODY before the first one, or where there is no farm.
    `silent`: there is a farm, and no choice of it that is still valid: nobody is to begin.
    `due`: the choice has come to us from another node, and we have not claimed since."""

    node: int = NOBODY
    silent: bool = False
    due: bool = False

    def learn(self, node: int, own: int) -> None:
        """The farm's word: a node, or NOBODY while none is known that has not expired."""
        self.silent = node == NOBODY
        if self.silent:
            return
        came = self.node not in (NOBODY, own)
        self.due = node == own and (came or self.due)
        self.node = node

    def order(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """In which turn members claim: the chosen one first, the others as they stand."""
        if self.node not in members:
            return members
        return (self.node, *(node for node in members if node != self.node))
