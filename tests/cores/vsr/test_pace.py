"""When a log session asks next: with those who were just answered, and soon in any case."""

from appliance.cores.vsr.pace import WAIT_FRACTION, Pace

RECORDS_MAX = 468
MS = 1_000_000


def answered(asked: int, waiting: int, took_ns: int = 20 * MS) -> Pace:
    """A pace whose request of so many records was answered at `took_ns`, others having collected
    meanwhile."""
    pace = Pace(RECORDS_MAX)
    pace.on_request(0, asked)
    pace.on_reply(took_ns, waiting)
    return pace


def test_a_log_session_that_never_asked_may_ask_at_once() -> None:
    assert Pace(RECORDS_MAX).may_ask(0, 0)


def test_a_lone_sender_is_never_made_to_wait() -> None:
    pace = answered(asked=1, waiting=0)
    assert pace.may_ask(20 * MS, 1)


def test_half_of_the_senders_wait_for_the_half_that_was_just_answered() -> None:
    pace = answered(asked=40, waiting=45)
    assert not pace.may_ask(20 * MS, 45)
    assert not pace.may_ask(21 * MS, 84)
    assert pace.may_ask(21 * MS, 85)


def test_senders_that_do_not_come_back_delay_the_others_by_a_quarter_of_a_request_at_most() -> None:
    pace = answered(asked=40, waiting=45, took_ns=20 * MS)
    latest = 20 * MS + 20 * MS // WAIT_FRACTION
    assert not pace.may_ask(latest - 1, 45)
    assert pace.may_ask(latest, 45)
    assert pace.may_ask(latest, 0)  # from then on nobody waits until the next reply


def test_a_reply_tells_how_long_its_request_took_and_how_long_the_next_one_waits() -> None:
    pace = Pace(RECORDS_MAX)
    pace.on_request(7 * MS, 40)
    assert pace.on_reply(27 * MS, 45) == 20 * MS
    assert pace.until_ns == 27 * MS + 20 * MS // WAIT_FRACTION
    assert not pace.may_ask(pace.until_ns - 1, 84)
    assert pace.may_ask(pace.until_ns, 45)


def test_to_look_whether_a_log_session_may_ask_changes_nothing() -> None:
    pace = answered(asked=40, waiting=45)
    for _ in range(2):
        assert pace.may_ask(20 * MS, 85)
        assert not pace.may_ask(20 * MS, 84)


def test_a_full_batch_does_not_wait_for_more_than_fits() -> None:
    pace = answered(asked=RECORDS_MAX, waiting=RECORDS_MAX)
    assert pace.may_ask(20 * MS, RECORDS_MAX)


def test_a_request_that_leaves_again_after_its_session_was_lost_is_not_held_back() -> None:
    pace = answered(asked=40, waiting=45)
    pace.on_request(21 * MS, 85)  # lost before its reply: it goes out again as it is
    assert pace.may_ask(21 * MS, 0)
