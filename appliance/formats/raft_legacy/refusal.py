"""Why a value was answered no for good, in the last byte of the answer: the feature `refusal`.

1 is yes, and everybody takes all else for no. So the other numbers say why, where both sides have
named the feature; asking again is of no use then.
"""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Refusal:
    """`word` for the counters; the sentence says what is needed."""

    word: str
    sentence: str


DATE_IMPOSSIBLE, APPEND_TIME_POSTED, POSTER_NOT_ID, ACT_NOT_ALLOWED, STATUS_NOT_ALLOWED = range(
    2, 7
)

REFUSALS: dict[int, Refusal] = {
    DATE_IMPOSSIBLE: Refusal(
        "date_impossible",
        "its date is no time, or more than a day ahead of all clocks of the farm: set the clock "
        "of who posts it",
    ),
    APPEND_TIME_POSTED: Refusal(
        "append_time_posted",
        "the time of an entry is put there by who leads: post the status alone",
    ),
    POSTER_NOT_ID: Refusal(
        "poster_not_id",
        "it is the status of another member: post as the member whose id it names",
    ),
    ACT_NOT_ALLOWED: Refusal(
        "act_not_allowed",
        "it is an act on the farm: post it with a user of class administrator (`farm user --class "
        "administrator` makes one)",
    ),
    STATUS_NOT_ALLOWED: Refusal(
        "status_not_allowed",
        "it is the status of a member: a member posts its own, with its own user",
    ),
}
UNKNOWN = Refusal("unknown", "a later version says why: look at the leader's log")


def refusal_of_code(code: int) -> Refusal:
    return REFUSALS.get(code, UNKNOWN)
