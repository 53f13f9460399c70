"""What a member does with values that are posted to it, before its core sees them.

    ClientRequest ──may it be?──no──▶ answered, with why
                       └──yes──▶ the time of who leads, document, time, document, ... ──▶ core

Followers look at them as well: who asked hears at once what no leader would take.
"""

import dataclasses

from appliance.cores.directory.directory import Directory, canonical
from appliance.cores.directory.document import DATE_MAX, parse_document, poster_of
from appliance.cores.directory.log_time import APPENDED, append_time
from appliance.cores.raft.users import User
from appliance.formats.raft_legacy.frame import APPLICATION, CLIENT_REQUEST, Entry, Request
from appliance.formats.raft_legacy.refusal import (
    APPEND_TIME_POSTED,
    DATE_IMPOSSIBLE,
    POSTER_NOT_ID,
)


def refusal_of_post(directory: Directory, user: User, request: Request, now_ms: int) -> int:
    """Why these values are not taken, a code of `REFUSALS`; 0: they are. `now_ms`: by our clock."""
    if request.type != CLIENT_REQUEST:
        return 0
    for entry in request.entries:
        if entry.type == APPLICATION and (code := _refusal_of(directory, user, entry, now_ms)):
            return code
    return 0


def _refusal_of(directory: Directory, user: User, entry: Entry, now_ms: int) -> int:
    document = parse_document(entry.value)
    if document is None:
        return 0  # of no meaning to the directory
    poster = poster_of(document)
    if user.id and poster not in (None, user.id):
        return POSTER_NOT_ID
    if document.get("cluster") != directory.cluster or poster is None:
        return 0
    if APPENDED in document:
        return APPEND_TIME_POSTED
    date = document.get("date")
    if type(date) is int and not 0 <= date <= min(DATE_MAX, directory.date_ms_max(now_ms)):
        return DATE_IMPOSSIBLE
    return 0


def with_append_times(directory: Directory, own_id: int, request: Request, now_ms: int) -> Request:
    """The request of a client as who leads appends it: its own time before each document."""
    if request.type != CLIENT_REQUEST:
        return request
    entries: list[Entry] = []
    for entry in request.entries:
        document = parse_document(entry.value) if entry.type == APPLICATION else None
        if document is not None and document.get("cluster") == directory.cluster:
            time = canonical(append_time(directory.cluster, own_id, now_ms))
            entries.append(Entry(0, APPLICATION, time))
        entries.append(entry)
    return dataclasses.replace(request, entries=tuple(entries))
