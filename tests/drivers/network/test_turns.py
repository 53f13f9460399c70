"""Turns by themselves: who is heard before whom, and how much of a turn each may have."""

import asyncio
from collections.abc import Callable

from appliance.base.limits import TURN_COST_ALL_MAX, TURN_COST_GREEDY_MAX, TURN_COST_MAX
from appliance.drivers.network.turns import Turns


class Client:
    """Has so many frames to say, each of which costs so much."""

    def __init__(self, name: str, frames: int, log: list[str], cost: int = 1) -> None:
        self.name, self.frames, self.log, self.cost = name, frames, log, cost
        self.turn, self.is_waiting = 0, False

    def advance(self, cost_max: int) -> tuple[int, bool]:
        cost = 0
        while self.frames and cost < cost_max:
            self.frames -= 1
            cost += self.cost
        self.log.append(self.name)
        return cost, self.frames > 0

    def on_turn(self) -> None:
        pass


def heard(say: Callable[[Turns, list[str]], None], turns_count: int) -> list[list[str]]:
    """Who was heard when `say` had come, and then in each turn."""

    async def whole() -> list[list[str]]:
        turns, log, seen = Turns(), [], []
        say(turns, log)
        for _ in range(turns_count + 1):
            seen.append(list(log))
            log.clear()
            await asyncio.sleep(0)
        return seen

    return asyncio.run(whole())


def test_who_has_much_to_say_gets_a_part_of_each_turn() -> None:
    def say(turns: Turns, log: list[str]) -> None:
        for i in range(32):
            turns.on_input(Client(f"greedy-{i}", 1000, log))

    first, *following = heard(say, 3)
    assert len(first) == TURN_COST_ALL_MAX // TURN_COST_MAX
    # those who were not heard at all, up to half of the turn; then a part for the greedy
    unheard, part = (TURN_COST_ALL_MAX // 2) // TURN_COST_MAX, TURN_COST_GREEDY_MAX // TURN_COST_MAX
    assert [len(names) for names in following] == [unheard + part, unheard + part, part]


def test_who_was_not_heard_comes_before_who_had_more_to_say() -> None:
    def say(turns: Turns, log: list[str]) -> None:
        for i in range(TURN_COST_ALL_MAX // TURN_COST_MAX):
            turns.on_input(Client(f"greedy-{i}", 1000, log))
        turns.on_input(Client("modest", 1, log))

    first, second, *_ = heard(say, 1)
    assert "modest" not in first
    assert second[0] == "modest"


def test_everybody_is_heard_in_the_end() -> None:
    clients: list[Client] = []

    def say(turns: Turns, log: list[str]) -> None:
        clients.extend(Client(f"client-{i}", i % 50, log, cost=1 + i % 7) for i in range(200))
        for client in clients:
            turns.on_input(client)

    assert heard(say, 1000)[-1] == []
    assert not any(client.frames or client.is_waiting for client in clients)
