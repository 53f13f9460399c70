"""The console's door: one secret, one session; sessions and patience are bounded."""

import argon2
import pytest

from appliance.drivers.host.operator_sign_in import (
    ADDRESSES_MAX,
    FAILURES_MAX,
    SECRET_LENGTH,
    SECRET_S,
    SESSION_S,
    SESSIONS_MAX,
    SHUT_S,
    THIS_MACHINE,
    OperatorSignIn,
    SecretExpired,
)

HERE, THERE = "192.0.2.1", "192.0.2.2"


class World:
    """A clock that is turned by hand, and a listener for secrets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: list[str] = []
        quick = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
        self.door = OperatorSignIn(now=lambda: self.now, tell=self.told.append, hasher=quick)
        assert self.told == []  # nobody listens yet
        self.door.open()


@pytest.fixture(scope="module")
def shared() -> World:
    return World()


def test_a_secret_works_once_in_any_case_and_spacing(shared: World) -> None:
    secret = shared.told[-1]
    assert len(secret.replace("-", "")) == SECRET_LENGTH
    token = shared.door.enter(f"  {secret.lower().replace('-', ' ')} ", HERE)
    assert token is not None
    assert shared.door.knows(token)
    assert shared.door.enter(secret, HERE) is None
    assert shared.told[-1] != secret


def test_no_secret_and_no_token_is_kept_in_the_clear(shared: World) -> None:
    token = shared.door.enter(shared.told[-1], HERE)
    kept = repr(vars(shared.door))
    assert token not in kept
    assert shared.told[-1].replace("-", "") not in kept
    assert "$argon2id$" in kept


@pytest.mark.parametrize("token", [None, "", "x", "A" * 43])
def test_strangers_are_not_known(shared: World, token: str | None) -> None:
    assert not shared.door.knows(token)
    shared.door.leave(token)


def test_a_session_ends_when_left_and_after_its_time() -> None:
    world = World()
    first = world.door.enter(world.told[-1], HERE)
    second = world.door.enter(world.told[-1], HERE)
    world.door.leave(first)
    assert (world.door.knows(first), world.door.knows(second)) == (False, True)
    world.now += SESSION_S - 1
    assert world.door.knows(second)
    world.now += 1
    assert not world.door.knows(second)


def test_the_door_shuts_after_wrong_secrets_and_opens_again() -> None:
    world = World()
    for _ in range(FAILURES_MAX - 1):
        assert world.door.enter("wrong", HERE) is None
    assert world.door.shut_for(HERE) == 0
    world.door.enter("wrong", HERE)
    assert world.door.shut_for(HERE) == SHUT_S
    world.now += SHUT_S
    assert world.door.shut_for(HERE) == 0
    assert world.door.enter(world.told[-1], HERE) is not None


def test_the_oldest_session_makes_room_for_one_too_many() -> None:
    world = World()
    tokens = [world.door.enter(world.told[-1], HERE) for _ in range(SESSIONS_MAX)]
    assert world.door.knows(tokens[0])
    tokens.append(world.door.enter(world.told[-1], HERE))
    assert [world.door.knows(token) for token in tokens] == [False] + [True] * SESSIONS_MAX


def test_wrong_secrets_shut_the_door_for_their_own_address_alone() -> None:
    world = World()
    for _ in range(FAILURES_MAX):
        world.door.enter("wrong", HERE)
    assert world.door.shut_for(HERE) == SHUT_S
    assert world.door.shut_for(THERE) == 0
    assert world.door.enter(world.told[-1], THERE) is not None


@pytest.mark.parametrize("address", THIS_MACHINE)
def test_the_machine_itself_is_never_shut_out(address: str) -> None:
    world = World()
    for _ in range(3 * FAILURES_MAX):
        world.door.enter("wrong", address)
    assert world.door.shut_for(address) == 0
    assert world.door.enter(world.told[-1], address) is not None


def test_failures_of_many_addresses_take_bounded_room() -> None:
    world = World()
    for number in range(ADDRESSES_MAX + 10):
        world.door._fail(f"address {number}")
    assert len(world.door._failures) == ADDRESSES_MAX


def test_a_secret_that_nobody_used_for_half_an_hour_opens_nothing_and_a_new_one_follows() -> None:
    world = World()
    first = world.told[-1]
    world.now += SECRET_S - 1
    assert world.door.enter("wrong", HERE) is None
    world.now += 1
    with pytest.raises(SecretExpired):
        world.door.enter(first, HERE)
    assert world.door.enter(first, HERE) is None
    assert len(world.told) == 2  # strangers who go on trying have no more of them told
    assert world.door.enter(world.told[-1], HERE) is not None
