"""Up to which record somebody who carries shared rooms has to look."""

from appliance.base.signature import SigningKey
from appliance.formats import record as rec
from appliance.formats.event import CARRY_CLAIM, Shipped, encode_policy, encode_shipped
from appliance.formats.geometry import SMALL
from appliance.formats.session import OK
from appliance.formats.sharing import SharedSite, Sharing
from tests.cores.rooms.shard import Shard, create, make, shard_record

SHARED, OTHER = 0, 1
SITES = Sharing(tuple(SharedSite(name, SigningKey(bytes(32)).public) for name in ("a", "b")))


class Log(Shard):
    """With two rooms."""

    def __init__(self) -> None:
        super().__init__(SMALL)
        self.seqs = {SHARED: 0, OTHER: 0}
        for room in self.seqs:
            assert self.one(create(room, client=900 + room)).code == OK
        assert self.newest() == (2, 2)

    def newest(self) -> tuple[int, int]:
        """The newest record, and the newest that may cross."""
        return self.rooms.log_seq, self.rooms.crossing_log_seq

    def message(self, room: int) -> bytes:
        self.seqs[room] += 1
        return make(room, 10 + room, self.seqs[room])

    def share(self, sharing: Sharing | None, client_seq: int) -> None:
        body = encode_policy(0, sharing)
        policy = make(SHARED, 900, client_seq, kind=rec.KIND_ROOM_POLICY, body=body)
        assert self.one(policy).code == OK


def test_messages_of_rooms_that_nobody_shares_do_not_cross_and_others_do() -> None:
    log = Log()
    log.commit(log.message(OTHER), log.message(SHARED))
    assert log.newest() == (4, 2)
    log.share(SITES, 2)
    assert log.newest() == (5, 5)
    log.commit(log.message(OTHER))
    assert log.newest() == (6, 5)
    log.commit(log.message(SHARED), log.message(OTHER))
    assert log.newest() == (8, 8), "told by prepares"
    log.share(None, 3)
    log.commit(log.message(SHARED))
    assert log.newest() == (10, 9)


def test_a_claim_and_a_new_room_are_to_be_known() -> None:
    log = Log()
    log.commit(log.message(OTHER))
    claim = Shipped(CARRY_CLAIM, 0, 1)
    assert log.one(shard_record(rec.KIND_SHIPPED, 1, encode_shipped(claim))).code == OK
    assert log.newest() == (4, 4)
    log.commit(log.message(OTHER))
    assert log.newest() == (5, 4)
    assert log.one(create(2, client=903)).code == OK
    assert log.newest() == (6, 6)


def test_a_state_that_was_restored_knows_its_shared_rooms_and_of_all_before_nothing() -> None:
    log = Log()
    log.share(SITES, 2)
    log.commit(log.message(OTHER))
    again = log.restarted(log.checkpoint())
    assert (again.rooms.log_seq, again.rooms.crossing_log_seq) == (4, 4)
    again.commit(log.message(OTHER))
    assert (again.rooms.log_seq, again.rooms.crossing_log_seq) == (5, 4)
    again.commit(log.message(SHARED))
    assert (again.rooms.log_seq, again.rooms.crossing_log_seq) == (6, 6)
