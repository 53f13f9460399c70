"""What a member does with values that are posted to it, before its core sees them.

    ClientRequest ──may it be?──no──▶ answered, with why
                       └──yes──▶ the time of who leads, document, time, document, ... ──▶ core

Followers look at them as well: who asked hears at once what no leader would take.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from appliance.base.errors import FarmFrameError
from appliance.cores.directory.acts import GUEST, config_of, is_act
from appliance.cores.directory.directory import Directory, canonical
from appliance.cores.directory.document import parse_document, poster_of
from appliance.cores.directory.log_time import APPENDED, append_time
from appliance.cores.raft.users import ADMINISTRATOR, MEMBER, SHARED, User
from appliance.formats.raft_legacy.configuration import decode_server
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    APPLICATION,
    CLIENT_REQUEST,
    REMOVE_SERVER,
    Entry,
    Request,
)
from appliance.formats.raft_legacy.refusal import (
    ACT_NOT_ALLOWED,
    APPEND_TIME_POSTED,
    DATE_IMPOSSIBLE,
    POSTER_NOT_ID,
    STATUS_NOT_ALLOWED,
)


def act_of(user: User, request: Request) -> dict[str, Any] | None:
    """What an administrator asks for, for the audit; None: it is no act."""
    if user.role != ADMINISTRATOR:
        return None
    if request.type in (ADD_SERVER, REMOVE_SERVER):
        return {"do": "add" if request.type == ADD_SERVER else "remove", "user": user.name}
    for entry in request.entries:
        document = parse_document(entry.value) if entry.type == APPLICATION else None
        if document is not None and is_act(document):
            return {"do": "post", "user": user.name, "config": config_of(document)}
    return None


def refusal_of_post(
    directory: Directory, user: User, users: Iterable[User], request: Request, now_ms: int
) -> int:
    """Why these values are not taken, a code of `REFUSALS`; 0: they are. `users`: all who may log
    in, nobody where there is no login; `now_ms`: by our clock."""
    if request.type != CLIENT_REQUEST:
        return 0
    for entry in request.entries:
        document = parse_document(entry.value) if entry.type == APPLICATION else None
        if document is None:
            continue  # of no meaning to the directory
        code = _not_own(directory, user, users, document) or _impossible(
            directory, document, now_ms
        )
        if code:
            return code
    return 0


def is_out(directory: Directory, user: User, request: Request) -> bool:
    """Whether a member asks for one to be added whom an administrator took out: such a one stays
    out until an administrator admits it."""
    if request.type != ADD_SERVER or user.role != MEMBER:
        return False
    try:
        added = [decode_server(entry.value).id for entry in request.entries]
    except (ValueError, FarmFrameError):
        return False  # the core says so
    return any(server_id in directory.departed[1] for server_id in added)


def _not_own(
    directory: Directory, user: User, users: Iterable[User], document: dict[str, Any]
) -> int:
    """Whether this is not for that user to post."""
    poster = poster_of(document)
    if user.id and poster not in (None, user.id):
        return POSTER_NOT_ID
    if not _concerns(directory, document) or not users:
        return 0  # without a login nobody can be told from another
    administrators = any(other.role == ADMINISTRATOR for other in users)
    if is_act(document):
        allowed = user.role == ADMINISTRATOR or (user.role == MEMBER and not administrators)
        if allowed and user.role == ADMINISTRATOR and "meta" in document:
            return STATUS_NOT_ALLOWED  # it would count as one, too
        return 0 if allowed else ACT_NOT_ALLOWED
    allowed = user.role in (MEMBER, SHARED) or bool(user.id)
    if GUEST in config_of(document):
        allowed = user.role == MEMBER
    return 0 if allowed else STATUS_NOT_ALLOWED


def _impossible(directory: Directory, document: dict[str, Any], now_ms: int) -> int:
    if not _concerns(directory, document):
        return 0
    if APPENDED in document:
        return APPEND_TIME_POSTED
    date = document.get("date")
    if type(date) is int and not 0 <= date <= directory.date_ms_max(now_ms):
        return DATE_IMPOSSIBLE
    return 0


def _concerns(directory: Directory, document: dict[str, Any]) -> bool:
    """Whether the directory will look at it."""
    return document.get("cluster") == directory.cluster and poster_of(document) is not None


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
