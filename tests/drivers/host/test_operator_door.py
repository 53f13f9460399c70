"""The console's door: one secret, one session; sessions and patience are bounded."""

import argon2
import pytest

from appliance.drivers.host.operator_door import (
    FAILURES_MAX,
    SECRET_LENGTH,
    SESSION_S,
    SESSIONS_MAX,
    SHUT_S,
    Door,
)


class World:
    """A clock that is turned by hand, and a listener for secrets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: list[str] = []
        quick = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
        self.door = Door(now=lambda: self.now, tell=self.told.append, hasher=quick)


@pytest.fixture(scope="module")
def shared() -> World:
    return World()


def test_a_secret_works_once_in_any_case_and_spacing(shared: World):
    secret = shared.told[-1]
    assert len(secret.replace("-", "")) == SECRET_LENGTH
    token = shared.door.enter(f"  {secret.lower().replace('-', ' ')} ")
    assert token is not None
    assert shared.door.knows(token)
    assert shared.door.enter(secret) is None
    assert shared.told[-1] != secret


def test_no_secret_and_no_token_is_kept_in_the_clear(shared: World):
    token = shared.door.enter(shared.told[-1])
    kept = repr(vars(shared.door))
    assert token not in kept
    assert shared.told[-1].replace("-", "") not in kept
    assert "$argon2id$" in kept


@pytest.mark.parametrize("token", [None, "", "x", "A" * 43])
def test_strangers_are_not_known(shared: World, token: str | None):
    assert not shared.door.knows(token)
    shared.door.leave(token)


def test_a_session_ends_when_left_and_after_its_time():
    world = World()
    first = world.door.enter(world.told[-1])
    second = world.door.enter(world.told[-1])
    world.door.leave(first)
    assert (world.door.knows(first), world.door.knows(second)) == (False, True)
    world.now += SESSION_S - 1
    assert world.door.knows(second)
    world.now += 1
    assert not world.door.knows(second)


def test_the_door_shuts_after_wrong_secrets_and_opens_again():
    world = World()
    for _ in range(FAILURES_MAX - 1):
        assert world.door.enter("wrong") is None
    assert world.door.shut_for() == 0
    world.door.enter("wrong")
    assert world.door.shut_for() == SHUT_S
    world.now += SHUT_S
    assert world.door.shut_for() == 0
    assert world.door.enter(world.told[-1]) is not None


def test_the_oldest_session_makes_room_for_one_too_many():
    world = World()
    tokens = [world.door.enter(world.told[-1]) for _ in range(SESSIONS_MAX)]
    assert world.door.knows(tokens[0])
    tokens.append(world.door.enter(world.told[-1]))
    assert [world.door.knows(token) for token in tokens] == [False] + [True] * SESSIONS_MAX
