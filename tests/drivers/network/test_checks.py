"""The checks on receipt: each is reached, in its place in the order, and counted under its name."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.checksum import crc32c
from appliance.base.limits import NONCE_WINDOW
from appliance.base.signature import CONTEXT_ENVELOPE, SigningKey
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.formats.command import COMMANDS_MEMBER
from appliance.formats.envelope import (
    COMMANDS_CLIENT,
    PING,
    PING_CLIENT,
    PREPARE,
    REQUEST,
    SENDER_CLIENT,
    Message,
    frame,
    make,
)
from appliance.formats.geometry import HEADER_SIZE

CLUSTER, SHARD, SIZE_MAX = b"c" * 16, 2, 1 << 16
KEY, STRANGER = SigningKey(b"k" * 32), SigningKey(b"s" * 32)
MEMBER = 1


def checks_of(public_key: bytes | None = KEY.public) -> Checks:
    return Checks(
        cluster=CLUSTER,
        shard=SHARD,
        message_size_max=SIZE_MAX,
        senders={
            MEMBER: Sender(COMMANDS_MEMBER, NonceWindow()),
            SENDER_CLIENT: Sender(COMMANDS_CLIENT, NonceWindow()),
        },
        public_key=public_key,
        drops=Counter(),
    )


class Forged:
    """A frame that can be spoilt at any field and then made right again above that."""

    def __init__(self, command: int = PREPARE, sender: int = MEMBER, nonce: int = 1) -> None:
        self.body = b"body of a prepare"
        header = make(command, cluster=CLUSTER, shard=SHARD, op=1, body=self.body)
        parts = frame(header, self.body, sender=sender, route=0, nonce=nonce, key=KEY)
        self.head = bytearray(parts[0])
        self.key = KEY

    def seal(self) -> "Forged":
        """Right checksum; the signature is made when the frame is given."""
        self.head[8:12] = bytes(4)
        self.head[8:12] = crc32c(self.body, crc32c(bytes(self.head))).to_bytes(4, "little")
        return self

    def given_to(self, checks: Checks) -> Message | None:
        head = bytes(self.head)
        return checks.check(head, self.body, self.key.sign(CONTEXT_ENVELOPE, head))


def _length(forged: Forged) -> None:
    forged.body += b"!"


def _magic(forged: Forged) -> None:
    forged.head[0] ^= 1


def _version(forged: Forged) -> None:
    forged.head[4] ^= 2


def _cluster(forged: Forged) -> None:
    forged.head[50] ^= 1


def _shard(forged: Forged) -> None:
    forged.head[66] ^= 1


def _command(forged: Forged) -> None:
    forged.head[6] = 0x7F


def _sender(forged: Forged) -> None:
    forged.head[64] = 7


def _checksum(forged: Forged) -> None:
    forged.head[8] ^= 1


def _signature(forged: Forged) -> None:
    forged.key = STRANGER


def _nonce(forged: Forged) -> None:
    forged.head[16:24] = bytes(8)


def _body_digest(forged: Forged) -> None:
    forged.body = forged.body[::-1]


def _header_digest(forged: Forged) -> None:
    forged.head[32] ^= 1


# By the names under which they are counted, in the order in which they are looked for.
SPOIL: dict[str, Callable[[Forged], None]] = {
    "magic": _magic, "version": _version, "length": _length, "cluster": _cluster, "shard": _shard,
    "command": _command, "sender": _sender, "checksum": _checksum, "signature": _signature,
    "nonce": _nonce, "body_digest": _body_digest, "header_digest": _header_digest,
}  # fmt: skip
DROPS = tuple(SPOIL)


def test_a_right_frame_passes() -> None:
    checks = checks_of()
    message = Forged().given_to(checks)
    assert message is not None and message.sender == MEMBER and message.header.op == 1
    assert not checks.drops


@pytest.mark.parametrize("name", DROPS)
def test_one_fault_is_counted_under_its_name_and_does_no_more(name: str) -> None:
    checks = checks_of()
    assert Forged(nonce=2000).given_to(checks) is not None
    forged = Forged(nonce=2001)
    SPOIL[name](forged)
    if name != "checksum":
        forged.seal()
    assert forged.given_to(checks) is None
    assert checks.drops == {name: 1}
    assert Forged(nonce=2002).given_to(checks) is not None


@pytest.mark.parametrize("place", range(len(DROPS)))
def test_of_many_faults_the_first_in_the_order_counts(place: int) -> None:
    checks = checks_of()
    assert Forged(nonce=2000).given_to(checks) is not None
    forged = Forged(nonce=2001)
    names = [name for name in DROPS[place:] if name != "checksum"]
    for name in names:
        SPOIL[name](forged)
    forged.seal()
    if DROPS[place] == "checksum":
        SPOIL["checksum"](forged)
    assert forged.given_to(checks) is None
    assert checks.drops == {DROPS[place]: 1}


@pytest.mark.parametrize(("command", "sender"), [(PING_CLIENT, MEMBER), (PING, SENDER_CLIENT)])
def test_a_command_of_another_kind_of_sender_is_refused(command: int, sender: int) -> None:
    checks = checks_of()
    assert Forged(command, sender).given_to(checks) is None
    assert checks.drops == {"sender": 1}


@pytest.mark.parametrize("sender", [MEMBER, SENDER_CLIENT])
def test_a_request_comes_from_a_client_or_from_a_member_that_forwards_it(sender: int) -> None:
    message = Forged(REQUEST, sender).given_to(checks_of())
    assert message is not None and message.sender == sender


@pytest.mark.parametrize("name", ["checksum", "signature", "nonce"])
def test_within_a_node_the_kernel_vouches(name: str) -> None:
    checks = checks_of(public_key=None)
    forged = Forged()
    SPOIL[name](forged)
    assert forged.given_to(checks) is not None


@pytest.mark.parametrize("name", ["cluster", "sender", "body_digest", "header_digest"])
def test_within_a_node_the_other_checks_stay(name: str) -> None:
    checks = checks_of(public_key=None)
    forged = Forged()
    SPOIL[name](forged)
    assert forged.given_to(checks) is None
    assert checks.drops == {name: 1}


def test_a_replay_is_refused_and_counted() -> None:
    checks = checks_of()
    assert Forged(nonce=5).given_to(checks) is not None
    assert Forged(nonce=5).given_to(checks) is None
    assert checks.drops == {"nonce": 1}


# --- nonces ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 3 * NONCE_WINDOW), max_size=200), st.integers(0, 1 << 63))
def test_each_nonce_passes_once_and_old_ones_never(nonces: list[int], base: int) -> None:
    window, seen, newest = NonceWindow(), set(), 0
    for nonce in (base + n for n in nonces):
        expected = nonce not in seen and nonce > newest - NONCE_WINDOW
        assert window.pass_once(nonce) == expected
        seen.add(nonce)
        newest = max(newest, nonce)


def test_reordered_nonces_pass_up_to_the_window_and_not_one_more() -> None:
    window = NonceWindow()
    newest = 10 * NONCE_WINDOW
    assert window.pass_once(newest)
    assert window.pass_once(newest - NONCE_WINDOW + 1)
    assert not window.pass_once(newest - NONCE_WINDOW)
    assert not window.pass_once(newest - NONCE_WINDOW + 1)


@given(st.binary(max_size=400))
def test_random_bytes_are_dropped_and_counted(data: bytes) -> None:
    checks = checks_of()
    head = data[:HEADER_SIZE].ljust(HEADER_SIZE, b"\0")
    assert checks.check(head, data[HEADER_SIZE:], bytes(64)) is None
    assert sum(checks.drops.values()) == 1
