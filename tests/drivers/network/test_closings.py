"""Codes with which WebSockets end: every error that ends one has its own, as documented."""

import re
from pathlib import Path

from appliance.base.errors import InputError
from appliance.drivers.network.closings import CLOSE_CODES, HTTP_STATUSES
from appliance.drivers.quic.library import Http3Code
from appliance.formats.client_errors import CLIENT_ERRORS

DOCS = Path(__file__).parents[3] / "docs"


def test_every_error_that_ends_a_connection_has_a_code_and_no_other() -> None:
    ending = {error for error in CLIENT_ERRORS if error.ends_connection or error.ends_stranger}
    assert set(CLOSE_CODES) == set(HTTP_STATUSES) == ending


def test_the_codes_are_those_of_the_protocol() -> None:
    page = (DOCS / "client-protocol.md").read_text()
    table = page[page.index("## Closings") : page.index("## Binary")]
    told = {
        int(code): set(re.findall(r"`(\w+[a-z])`", names))
        for code, names in re.findall(r"^\| (\d+) \| ([^|]+) \|", table, re.M)
    }
    for error, code in CLOSE_CODES.items():
        name = error.__new__(error).name
        assert name in told[code] or (code == 4003 and name.startswith("token_")), name
    assert set(told) - set(CLOSE_CODES.values()) == {1002, 1007}  # of WebSocket itself


HEAD = (
    "| code | name | temporary | `retry_after` ms | WebSocket, WebTransport | QUIC | HTTP |\n"
    "|---|---|---|---|---|---|---|\n"
)


def _row(error: type[InputError]) -> str:
    """As the page says it; `QUIC`: with what the stream of the conversation is stopped."""
    ends = error in CLOSE_CODES
    cells = (
        error.code,
        f"`{error.__new__(error).name}`",
        "yes" if error.temporary else "",
        error.retry_after_ms or "",
        CLOSE_CODES[error] if ends else "",
        f"{Http3Code.H3_NO_ERROR:#x}" if ends else "",
        HTTP_STATUSES[error] if ends else "",
    )
    return "| " + " | ".join(map(str, cells)) + " |\n"


def test_the_page_of_errors_has_the_table_that_the_errors_make() -> None:
    table = HEAD + "".join(_row(error) for error in CLIENT_ERRORS)
    assert table in (DOCS / "errors.md").read_text(), table


def test_http_statuses_are_of_refusals() -> None:
    """A client that is no browser goes by the class alone: 5xx, and those that are told to wait."""
    for error, status in HTTP_STATUSES.items():
        assert 400 <= status < 600
        assert status < 500 or error.temporary, error
