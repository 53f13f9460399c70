"""Logins between both sides, and against what strangers may try."""

import re

import pytest

from appliance.base import limits
from appliance.cores.raft.dial import Challenges, Entered, GaveUp
from appliance.cores.raft.digest import MD5, SHA256
from appliance.cores.raft.hint import LeaderHint, decode_hint, encode_hint
from appliance.cores.raft.http_head import Fields, HeadBuffer, HeadMalformed, parse_answer
from appliance.cores.raft.login import ServerLogin, path_of
from appliance.cores.raft.nonces import Nonces
from appliance.cores.raft.users import ADMINISTRATOR, CLIENT, MEMBER, SHARED, refusal_of
from appliance.formats.raft_legacy.configuration import Server
from appliance.formats.raft_legacy.frame import ANSWER_OF, Request
from tests.cores.raft.doors import NOW, Doors, user


@pytest.fixture
def doors() -> Doors:
    return Doors()


def entered(step: Entered) -> Entered:
    assert isinstance(step, Entered), step
    return step


def gave_up(step: GaveUp, reason: str) -> GaveUp:
    assert isinstance(step, GaveUp), step
    assert step.reason == reason
    return step


@pytest.mark.parametrize("algorithm", [MD5, SHA256])
def test_a_first_login_takes_two_connections_and_the_next_ones_begin_with_the_proof(
    algorithm: str,
) -> None:
    doors = Doors()
    step, connections = doors.connect(doors.client(algorithms=(algorithm,)), behind=b"")
    assert entered(step).features == {"pre-vote", "leader-hint", "refusal"}
    assert connections == 2
    for _ in range(3):
        step, connections = doors.connect(doors.client(algorithms=(algorithm,)))
        entered(step)
        assert connections == 1
    assert doors.challenges.counts == {"request_1": 1, "request_2": 4}
    assert doors.doorway.counts == {"challenged": 1, "logged_in": 4}


def test_sha_256_is_offered_and_taken_first(doors: Doors) -> None:
    doors.connect(doors.client())
    challenges = re.findall(rb"algorithm=(\S+),", doors.replies[0])
    assert challenges == [b"SHA-256", b"MD5"]
    assert doors.login is not None
    (known,) = [doors.challenges.take(("tcp://10.0.0.3:7650", "farm"), doors.now_ms)]
    assert known is not None and known[0].algorithm == SHA256


def test_bytes_behind_the_login_are_kept_on_both_sides(doors: Doors) -> None:
    doors.connect(doors.client())
    step, _ = doors.connect(
        doors.client(), behind=b"\x05raft", change=lambda reply: reply + b"\x04answer"
    )
    assert doors.login is not None and doors.login.rest == b"\x05raft"
    assert entered(step).rest == b"\x04answer"


def test_a_login_arrives_byte_by_byte(doors: Doors) -> None:
    doors.connect(doors.client())
    request = doors.client().begin(NOW, doors.prng.bytes)
    server = ServerLogin(doors.doorway, "10.0.0.9", doors.prng.bytes)
    for i in range(len(request) - 1):
        assert server.on_bytes(request[i : i + 1], NOW) is None
    verdict = server.on_bytes(request[-1:], NOW)
    assert verdict is not None and verdict.login is not None


def test_a_wrong_password_gives_up_after_one_more_round_and_waits_longer_each_time(
    doors: Doors,
) -> None:
    waits = []
    for turn in range(7):
        step, connections = doors.connect(doors.client(password="wrong"))
        waits.append(gave_up(step, "credentials_refused").wait_ms)
        assert connections == (4 if turn == 0 else 4)
    assert waits == [30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000]
    place = ("tcp://10.0.0.3:7650", "farm")
    assert doors.challenges.wait_ms(place, doors.now_ms + 1000) == 599_000
    entered(doors.connect(doors.client())[0])
    assert doors.challenges.wait_ms(place, doors.now_ms) == 0


def test_failed_logins_of_an_address_are_answered_later_and_later(doors: Doors) -> None:
    request = doors.client(password="wrong")
    doors.ask(request.begin(NOW, doors.prng.bytes))
    request.on_bytes(doors.replies[-1], NOW)
    data = request.begin(NOW, doors.prng.bytes)
    delays = [doors.ask(data).delay_ms for _ in range(25)]
    assert delays[:10] == [0] * 10
    assert delays[10:13] == [500, 1000, 1500]
    assert delays[-1] == limits.FARM_FAILURE_DELAY_MS_MAX
    assert doors.ask(data, address="10.0.0.10").delay_ms == 0
    doors.now_ms += 60_001
    assert doors.ask(data).delay_ms == 0


def test_a_restarted_server_makes_old_challenges_stale_and_the_client_tries_once_more(
    doors: Doors,
) -> None:
    entered(doors.connect(doors.client())[0])
    doors.restart_server()
    step, connections = doors.connect(doors.client())
    entered(step)
    assert connections == 2
    assert b"stale=true" in doors.replies[-2]
    assert doors.challenges.counts["stale"] == 1


def test_a_server_that_calls_everything_stale_is_left_alone(doors: Doors) -> None:
    doors.connect(doors.client())
    doors.gate.nonces.accept = lambda *_: False  # type: ignore[method-assign]
    step, connections = doors.connect(doors.client())
    gave_up(step, "credentials_refused")
    assert connections == 2


def test_a_replayed_proof_is_stale(doors: Doors) -> None:
    doors.connect(doors.client())
    request = doors.client().begin(NOW, doors.prng.bytes)
    assert doors.ask(request).login is not None
    again = doors.ask(request)
    assert (again.login, again.reason, again.delay_ms) == (None, "stale", 0)


def test_a_client_forgets_a_challenge_after_an_hour_and_the_server_after_two(doors: Doors) -> None:
    doors.connect(doors.client())
    request = doors.client().begin(NOW, doors.prng.bytes)
    doors.now_ms += limits.FARM_CHALLENGE_AGE_MS_MAX
    assert doors.connect(doors.client())[1] == 1
    doors.now_ms += 1
    assert doors.connect(doors.client())[1] == 2
    doors.now_ms = NOW + limits.FARM_NONCE_AGE_MS_MAX
    assert doors.ask(request).login is not None
    late = doors.client().begin(NOW, doors.prng.bytes)
    doors.now_ms += limits.FARM_NONCE_AGE_MS_MAX + 1
    assert doors.ask(late).reason in ("stale",)


def test_parallel_connections_share_a_challenge_and_no_count_is_given_twice(doors: Doors) -> None:
    doors.connect(doors.client())
    requests = [doors.client().begin(NOW, doors.prng.bytes) for _ in range(50)]
    doors.prng.shuffle(requests)
    assert all(doors.ask(request).login is not None for request in requests)
    counts = {re.search(rb"nc=(\w+)", request)[1] for request in requests}
    assert len(counts) == 50


def make_nonce(nonces: Nonces, now_ms: int, fill: int = 0) -> str:
    return nonces.make(now_ms, bytes([fill]) * 16)


def test_counts_are_taken_once_in_any_order_inside_their_window() -> None:
    nonces = Nonces(bytes(32))
    nonce = make_nonce(nonces, NOW)
    most = limits.FARM_NONCE_COUNTS_MAX
    assert not nonces.accept(nonce, 0, NOW)
    assert nonces.accept(nonce, most, NOW)
    assert nonces.accept(nonce, 1, NOW)
    assert not nonces.accept(nonce, 1, NOW)
    assert nonces.accept(nonce, most + 1, NOW)
    assert not nonces.accept(nonce, most, NOW)
    assert nonces.accept(nonce, 2, NOW)
    assert not nonces.accept(nonce, 1, NOW)
    assert nonces.accept(nonce, 1 << 31, NOW)
    assert not nonces.accept(nonce, 3, NOW)


def test_a_forged_or_misspelt_nonce_is_refused() -> None:
    nonces = Nonces(bytes(32))
    nonce = make_nonce(nonces, NOW)
    for other in ("", "x", nonce[:-4], "B" + nonce[1:], nonce[:-3] + "R==", nonce + "=", "é"):
        assert not nonces.accept(other, 1, NOW)
    assert not Nonces(b"\x01" * 32).accept(nonce, 1, NOW)
    assert not nonces.accept(make_nonce(nonces, NOW + 10 * 7_200_000), 1, NOW)


def test_a_full_table_of_nonces_forgets_the_oldest_and_never_takes_a_count_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("appliance.cores.raft.nonces.FARM_NONCES_MAX", 4)
    nonces = Nonces(bytes(32))
    made = [make_nonce(nonces, NOW + i, i) for i in range(6)]
    assert all(nonces.accept(nonce, 1, NOW + 10) for nonce in made)
    assert [nonces.accept(nonce, 2, NOW + 10) for nonce in made] == [False] * 2 + [True] * 4
    assert not any(nonces.accept(nonce, 1, NOW + 10) for nonce in made)


def test_the_uri_must_be_that_of_the_request(doors: Doors) -> None:
    other = path_of("other")
    doors.doorway.gates[other] = doors.gate
    doors.connect(doors.client())
    request = doors.client().begin(NOW, doors.prng.bytes)
    moved = request.replace(b"GET /GarlicFarm/farm/", b"GET /GarlicFarm/other/", 1)
    assert doors.ask(moved).reason == "uri_wrong"


def test_the_absolute_form_of_a_proxy_is_taken_on_either_side(doors: Doors) -> None:
    step, connections = doors.connect(doors.client(absolute=True, proxy_authorization="Basic eA=="))
    entered(step)
    assert connections == 2
    request = doors.client(absolute=True).begin(NOW, doors.prng.bytes)
    assert request.startswith(b"GET http://10.0.0.3:7650/GarlicFarm/farm/1/websocket HTTP/1.1\r\n")
    assert b'uri="/GarlicFarm/' in request
    assert doors.ask(request).login is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((b'username="node3"', b'username="node4"'), "user_unknown"),
        ((b'realm="GarlicFarm"', b'realm="garlicfarm"'), "realm_wrong"),
        ((b'response="', b'response="0'), "password_wrong"),
        ((b"nc=00000001", b"nc=00000002"), "password_wrong"),
        ((b"algorithm=SHA-256, ", b""), "password_wrong"),
        ((b"qop=auth, ", b""), "qop_missing"),
        ((b"qop=auth,", b"qop=auth-int,"), "qop_refused"),
        ((b"algorithm=SHA-256", b"algorithm=MD5-sess"), "algorithm_refused"),
        ((b"Authorization: Digest", b"Authorization: Basic"), "scheme_refused"),
        ((b"nc=00000001", b"nc=1"), "digest_malformed"),
        ((b"Upgrade: websocket\r\n", b""), "upgrade_missing"),
        ((b"keep-alive, Upgrade", b"keep-alive"), "upgrade_missing"),
        ((b"HTTP/1.1", b"HTTP/1.0"), "request_line_malformed"),
        ((b"Host:", b"Content-Length: 5\r\nHost:"), "body_refused"),
        ((b"Host:", b"Transfer-Encoding: chunked\r\nHost:"), "body_refused"),
        ((b"Host:", b"Authorization: Digest\r\nHost:"), "field_repeated"),
        ((b"Host:", b" folded\r\nHost:"), "field_malformed"),
        ((b"Host:", b"no colon\r\nHost:"), "field_malformed"),
        ((b"Host:", b"Host : x\r\nHost:"), "field_malformed"),
        ((b"Host:", b"X: \xff\r\nHost:"), "not_ascii"),
        ((b"Host:", b"X: \x00\r\nHost:"), "control_character"),
        ((b"Host:", b"X: a\nHost:"), "control_character"),
    ],
)
def test_what_is_wrong_in_a_proof_is_refused_and_counted_by_name(
    doors: Doors, change: tuple[bytes, bytes], reason: str
) -> None:
    doors.connect(doors.client())
    doors.challenges.learn(
        ("tcp://10.0.0.3:7650", "farm"),
        doors.challenges.take(("tcp://10.0.0.3:7650", "farm"), NOW)[0],
        NOW,
    )
    doors.restart_server()  # the count may begin anew: the proof itself is what is judged
    request = doors.client().begin(NOW, doors.prng.bytes)
    assert change[0] in request
    verdict = doors.ask(request.replace(*change))
    assert (verdict.reason, verdict.login) == (reason, None)
    assert doors.doorway.counts[reason] == 1
    assert b"stale" not in verdict.reply


NEAR_MISSES = [
    *(
        "/GarlicFarm/farm/1/websocket/",
        "/GarlicFarm/Farm/1/websocket",
    ),
    *("/garlicfarm/farm/1/websocket", "/GarlicFarm/farm2/1/websocket", "/", "*"),
    *(
        "/GarlicFarm/%66arm/1/websocket",
        "/GarlicFarm//1/websocket",
        "//GarlicFarm/farm/1/websocket",
    ),
    *("/GarlicFarm/farm/1/websocket?", "/GarlicFarm/farm/1/websocket#a", "/GarlicFarm/farm/1"),
    *("https://a/GarlicFarm/farm/1/websocket", "http://a", "/GarlicFarm/farm/01/websocket"),
    "/x/../GarlicFarm/farm/1/websocket",
]


@pytest.mark.parametrize("target", NEAR_MISSES)
def test_every_near_miss_of_the_path_gets_the_same_404(doors: Doors, target: str) -> None:
    miss = doors.ask(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert miss.reason == "path_unknown"
    assert miss.reply == b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("version", ["2", "17"])
def test_another_version_gets_the_same_404_and_is_counted_by_its_name(
    doors: Doors, version: str
) -> None:
    miss = doors.ask(f"GET {path_of('farm', version)} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert miss.reply == b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert miss.reason == "version_unknown" and doors.doorway.counts == {"version_unknown": 1}


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "CONNECT"])
def test_another_method_gets_the_404_too(doors: Doors, method: str) -> None:
    found = doors.ask(f"{method} {path_of('farm')} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert found.reason == "path_unknown"


def test_a_head_past_its_bounds_is_refused_and_one_at_them_is_not() -> None:
    line = b"A: b\r\n"
    first = b"GET / HTTP/1.1\r\n"
    HeadBuffer().feed(first + line * 62 + b"A: b\r\n\r\n")
    with pytest.raises(HeadMalformed, match="head_too_many_lines"):
        HeadBuffer().feed(first + line * 64 + b"\r\n")
    with pytest.raises(HeadMalformed, match="head_too_many_lines"):
        HeadBuffer().feed(b"\n" * 64)
    room = limits.FARM_HEAD_SIZE_MAX - len(first) - 3
    assert HeadBuffer().feed(first + b"A: " + b"b" * room + b"\r\n\r\n") is not None
    with pytest.raises(HeadMalformed, match="head_too_large"):
        HeadBuffer().feed(first + b"A: " + b"b" * (room + 1) + b"\r\n\r\n")
    endless = HeadBuffer()
    with pytest.raises(HeadMalformed, match="head_too_large"):
        for _ in range(100):
            endless.feed(b"x" * 100)


def test_no_answer_names_the_product(doors: Doors) -> None:
    doors.connect(doors.client(password="wrong"))
    doors.connect(doors.client())
    doors.ask(b"GET / HTTP/1.1\r\n\r\n")
    doors.ask(b"nonsense\r\n\r\n")
    for reply in doors.replies:
        assert b"tiger" not in reply.lower()
        assert b"server:" not in reply.lower()


def test_a_client_of_sha_256_refuses_a_server_of_md5() -> None:
    doors = Doors(algorithms=(MD5,))
    step, connections = doors.connect(doors.client(algorithms=(SHA256,)))
    gave_up(step, "algorithm_refused")
    assert connections == 1


def test_a_server_of_sha_256_refuses_an_md5_proof() -> None:
    doors = Doors(algorithms=(SHA256,))
    other = Doors()
    other.connect(other.client(algorithms=(MD5,)))
    request = other.client(algorithms=(MD5,)).begin(NOW, other.prng.bytes)
    assert doors.ask(request).reason == "algorithm_refused"


@pytest.mark.parametrize(
    ("pattern", "text", "reason"),
    [
        (rb"Sec-WebSocket-Accept: \S+", b"Sec-WebSocket-Accept: AAAA", "accept_wrong"),
        (rb'rspauth="\w+"', b'rspauth="00"', "server_proof_wrong"),
        (rb'cnonce="\w+"', b'cnonce="00"', "server_proof_wrong"),
        (rb"nc=\w+, cnonce", b"nc=000000ff, cnonce", "server_proof_wrong"),
        (rb"101 Switching Protocols", b"200 OK", "status_200"),
        (rb"101 Switching Protocols", b"407 Proxy", "status_407"),
        (rb"HTTP/1.1", b"ICY", "status_line_malformed"),
    ],
)
def test_a_wrong_answer_to_the_proof_ends_the_login(
    doors: Doors, pattern: bytes, text: bytes, reason: str
) -> None:
    doors.connect(doors.client())
    step, _ = doors.connect(doors.client(), change=lambda reply: re.sub(pattern, text, reply))
    gave_up(step, reason)
    assert doors.challenges.counts[reason] == 1


def test_a_missing_accept_key_is_counted_and_a_missing_proof_only_where_it_is_wanted(
    doors: Doors,
) -> None:
    doors.connect(doors.client())

    def without(reply: bytes) -> bytes:
        return re.sub(rb"(Sec-WebSocket-Accept|Authentication-Info): [^\r]+\r\n", b"", reply)

    step, _ = doors.connect(doors.client(), change=without)
    entered(step)
    assert doors.challenges.counts["accept_missing"] == 1
    step, _ = doors.connect(doors.client(require_server_proof=True), change=without)
    gave_up(step, "server_proof_missing")
    entered(doors.connect(doors.client(require_server_proof=True))[0])


def test_features_are_on_when_both_sides_name_them() -> None:
    for mine, theirs, both in (
        (("pre-vote",), ("pre-vote", "leader-hint"), {"pre-vote"}),
        ((), ("pre-vote",), set()),
        (("pre-vote", "unheard-of"), (), set()),
        (("pre-vote", "unheard-of"), ("pre-vote",), {"pre-vote"}),
    ):
        doors = Doors(features=theirs)
        step, _ = doors.connect(doors.client(features=mine))
        assert entered(step).features == both
        assert doors.login is not None and doors.login.features == both


HINT = LeaderHint(3, (Server(1, "tcp://a:1"), Server(3, "tcp://10.0.0.3:7650")), 17)


def test_the_leader_is_hinted_to_who_asked_for_it() -> None:
    doors = Doors(hint=HINT)
    step, _ = doors.connect(doors.client())
    assert entered(step).hint == HINT
    assert b"Farm-Leader: 3 tcp://10.0.0.3:7650\r\n" in doors.replies[-1]
    step, _ = doors.connect(doors.client(features=()))
    assert entered(step).hint is None
    assert b"Farm-Leader" not in doors.replies[-1]


def test_an_unknown_leader_is_minus_one_and_a_broken_hint_is_none() -> None:
    fields = encode_hint(LeaderHint(-1, HINT.members, 17))
    assert fields[0] == ("Farm-Leader", "-1")
    lower = [(name.lower(), value) for name, value in fields]
    assert decode_hint(Fields(tuple(lower))) == LeaderHint(-1, HINT.members, 17)
    for broken in ("x", "3", ""):
        assert decode_hint(Fields((lower[0], ("farm-members", broken), lower[2]))) is None
    assert decode_hint(Fields(tuple(lower[:2]))) is None


MAY = {
    MEMBER: set(ANSWER_OF),
    ADMINISTRATOR: {5, 6, 8},
    CLIENT: {5},
    SHARED: set(ANSWER_OF),
}


@pytest.mark.parametrize("role", MAY)
def test_each_class_of_user_may_send_its_types_from_its_source(role: str) -> None:
    server_id = 3 if role in (MEMBER, CLIENT) else 0
    someone = user(role=role, server_id=server_id)
    for kind in ANSWER_OF:
        for source in (0, 3, 4):
            refusal = refusal_of(someone, Request(kind, source=source), pre_vote=True)
            if kind not in MAY[role]:
                assert refusal == "type_not_allowed"
            elif kind in (5, 6, 8):
                own = source in (0, server_id) or role == SHARED
                assert refusal == ("" if own else "source_not_own")
            elif role == SHARED:
                assert refusal == ("" if source else "source_not_own")
            else:
                assert refusal == ("" if source == 3 else "source_not_own")
    asked = refusal_of(user(), Request(33, source=3), pre_vote=False)
    assert asked == "pre_vote_not_agreed"


def test_random_bytes_are_answered_or_waited_for(doors: Doors) -> None:
    for _ in range(2000):
        data = doors.prng.bytes(doors.prng.between(1, 300)) + b"\r\n\r\n" * doors.prng.below(2)
        verdict = ServerLogin(doors.doorway, "a", doors.prng.bytes).on_bytes(data, NOW)
        assert verdict is None or verdict.login is None
        client = doors.client()
        client.begin(NOW, doors.prng.bytes)
        assert not isinstance(client.on_bytes(data, NOW), Entered)
    assert isinstance(doors.challenges, Challenges)
    with pytest.raises(HeadMalformed):
        parse_answer(b"\xff")
