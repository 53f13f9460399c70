"""Ticks that are counted together, when they matter, lead to what single ones lead to."""

from appliance.cores.vsr.idle import idle_ticks
from appliance.formats.envelope import Message
from tests.cores.vsr.group import Group, Node


class Sleepers(Group):
    """A group whose replicas sleep until something is due, or something comes for them."""

    def __init__(self) -> None:
        self.owed: dict[int, int] = {}  # ticks that have passed and are not counted, by machine
        self.wakes = 0
        super().__init__()

    def tell_time(self) -> None:
        self.tick += 1
        for node in self.running():
            self.owed[node.index] = self.owed.get(node.index, 0) + 1
            if self.owed[node.index] > idle_ticks(node.core, exact=True):
                self.wakes += 1
                self.wake(node)
                self.after(node)
        for session in self.sessions:
            session.core.on_tick()
            session.take()

    def wake(self, node: Node) -> None:
        owed = self.owed.pop(node.index, 0)
        for _ in range(owed if node.replica is not None else 0):
            node.core.on_tick(*self.times(node.index))

    def deliver(self, source: int, target: int, message: Message) -> None:
        if target >= 0:
            self.wake(self.nodes[target])
        super().deliver(source, target, message)

    def io(self, node: Node) -> bool:
        if node.disk.reads or node.disk.writes:
            self.wake(node)
        return super().io(node)


def story(group: Group) -> list[tuple[int, int, bytes]]:
    """Requests, silence, a primary that dies, one that comes back; all that was said."""
    session = group.opened()
    group.put(session, 3)
    group.run(120)
    first = group.primary
    assert first is not None
    group.crash(first)
    group.until(lambda: group.primary not in (None, first))
    group.put(session, 2)
    group.restart(first)
    group.until(group.converged)
    group.run(300)
    return [(source, target, header.raw) for source, target, header in group.trace]


def test_a_group_that_sleeps_until_something_is_due_says_the_same_at_the_same_time() -> None:
    awake, asleep = Group(), Sleepers()
    assert story(asleep) == story(awake)
    assert asleep.tick == awake.tick
    assert asleep.wakes < 3 * awake.tick * 0.5, "they did not sleep"
