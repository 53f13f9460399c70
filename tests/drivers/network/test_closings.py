"""Codes with which WebSockets end: every error that ends one has its own, as documented."""

import re
from pathlib import Path

from appliance.drivers.network.closings import CLOSE_CODES
from appliance.formats.client_errors import CLIENT_ERRORS

DOCS = Path(__file__).parents[3] / "docs"


def test_every_error_that_ends_a_connection_has_a_code_and_no_other():
    ending = {error for error in CLIENT_ERRORS if error.ends_connection or error.ends_stranger}
    assert set(CLOSE_CODES) == ending


def test_the_codes_are_those_of_the_protocol():
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
