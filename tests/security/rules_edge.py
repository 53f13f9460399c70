"""Rules of client port, edge and idempotency windows against strangers and users: what each is
for, where it stands, which test holds it, and how it is weakened to see that the test does.

`old` stands once in the file `where`; with `new` in its place the rule is gone.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """One row."""

    threat: str
    rule: str
    where: str
    test: str  # file::function
    old: str
    new: str


RULES = (
    Rule(
        threat="a token forged with the public key as a secret",
        rule="only EdDSA is accepted",
        where="appliance/cores/edge/token.py",
        test=(
            "tests/cores/edge/test_token.py::test_a_whole_token_signed_with_t"
            "he_public_key_as_a_secret_is_refused"
        ),
        old='        if header.get("alg") not in ALGORITHMS:',
        new=(
            '        if header.get("alg") == "HS256":\n            kid = heade'
            'r["kid"]\n            key = self.keys[kid]\n            for secret'
            " in (key.public_bytes_raw(),):\n                return kid, key, "
            'jwt.decode(token, secret, algorithms=["HS256"], options=_OPTIONS'
            ')\n        if header.get("alg") not in ALGORITHMS:'
        ),
    ),
    Rule(
        threat="a token without a signature",
        rule="only EdDSA is accepted",
        where="appliance/cores/edge/token.py",
        test=("tests/cores/edge/test_token.py::test_a_whole_token_without_a_signature_is_refused"),
        old='        if header.get("alg") not in ALGORITHMS:',
        new=(
            '        if header.get("alg") == "none":\n            return heade'
            'r["kid"], self.keys[header["kid"]], jwt.decode(token, options={"'
            'verify_signature": False})\n        if header.get("alg") not in AL'
            "GORITHMS:"
        ),
    ),
    Rule(
        threat="a token of the future",
        rule="clocks may differ by 60 s",
        where="appliance/base/limits.py",
        test=("tests/cores/edge/test_token.py::test_small_clock_differences_are_forgiven"),
        old="CLOCK_SKEW_US = 60_000_000",
        new="CLOCK_SKEW_US = 600_000_000",
    ),
    Rule(
        threat="a right that was taken away is used",
        rule="rights are judged anew after a refresh",
        where="appliance/cores/edge/requests/sign_in.py",
        test=("tests/cores/edge/test_rights.py::test_each_user_may_do_what_the_table_says"),
        old="        session.rights.clear()\n        self._welcome",
        new="        self._welcome",
    ),
    Rule(
        threat="a room that was taken away is heard",
        rule="subscriptions follow the new claims",
        where="appliance/cores/edge/requests/sign_in.py",
        test=("tests/cores/edge/test_rights.py::test_each_user_may_do_what_the_table_says"),
        old="            if not claims.rights_in(subscription.room.name) & READ:",
        new="            if False:",
    ),
    Rule(
        threat="history at any rate",
        rule="every frame is counted",
        where="appliance/cores/edge/requests/dispatch.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_every_frame_is_counted_a"
            "lso_one_that_is_refused"
        ),
        old="elif type(frame) is not Sends and",
        new='elif type(frame).__name__ not in ("Sends", "SnapshotRequest") and',
    ),
    Rule(
        threat="subscriptions at any rate",
        rule="every frame is counted",
        where="appliance/cores/edge/requests/dispatch.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_every_frame_is_counted_a"
            "lso_one_that_is_refused"
        ),
        old="elif type(frame) is not Sends and",
        new='elif type(frame).__name__ not in ("Sends", "SubscribeRoom") and',
    ),
    Rule(
        threat="refreshes at any rate",
        rule="every frame is counted",
        where="appliance/cores/edge/requests/dispatch.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_every_frame_is_counted_a"
            "lso_one_that_is_refused"
        ),
        old="elif type(frame) is not Sends and",
        new='elif type(frame).__name__ not in ("Sends", "RefreshToken") and',
    ),
    Rule(
        threat="large pages at the price of small ones",
        rule="history is charged by its bytes",
        where="appliance/cores/edge/requests/reading.py",
        test=("tests/cores/edge/test_pressure.py::test_history_is_charged_by_its_bytes"),
        old=("        self._charges.charge_work(session, len(payload) // limits.HISTORY"),
        new="        (session, len(payload) // limits.HISTORY",
    ),
    Rule(
        threat="frames pile up behind a room nobody knows",
        rule="one message waits",
        where="appliance/cores/edge/session.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_behind_a_room_that_nobod"
            "y_knows_one_message_waits_as_it_came"
        ),
        old="            self.waiting or self.is_full or",
        new="            self.is_full or",
    ),
    Rule(
        threat="a client that reads nothing asks on",
        rule="who takes nothing is not read from",
        where="appliance/cores/edge/session.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_what_a_blocked_client_as"
            "ks_for_waits_and_is_answered_later"
        ),
        old="            self.waiting or self.is_full or",
        new="            self.waiting or",
    ),
    Rule(
        threat="answers pile up for a client that reads nothing",
        rule="nothing is made for who takes nothing",
        where="appliance/cores/edge/frames.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_what_a_blocked_client_as"
            "ks_for_waits_and_is_answered_later"
        ),
        old='and session.state != "closed" and not session.is_full',
        new='and session.state != "closed"',
    ),
    Rule(
        threat="somebody uses up a victim's rate",
        rule="rates are kept by author and device",
        where="appliance/cores/edge/requests/sign_in.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_nobody_uses_up_what_anot"
            "her_users_device_may_send"
        ),
        old='session.device = client_id + author_id.to_bytes(8, "little")',
        new="session.device = client_id",
    ),
    Rule(
        threat="refused for ever",
        rule="who is refused again and again is closed",
        where="appliance/cores/edge/patience.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_frame_after_frame_refuse"
            "d_is_read_slowly_and_then_closed"
        ),
        old="return self._strikes > STRIKES_MAX",
        new="return False",
    ),
    Rule(
        threat="connections that say nothing",
        rule="a first request has its time",
        where="appliance/drivers/network/websocket.py",
        test=("tests/drivers/network/test_client_port.py::test_a_request_has_its_time"),
        old="self.end_after((HELLO_MS_MAX if self",
        new="self.end_after((3_600_000 if self",
    ),
    Rule(
        threat="requests that never end",
        rule="each request has its time",
        where="appliance/drivers/network/websocket.py",
        test=("tests/drivers/network/test_client_port.py::test_a_request_has_its_time"),
        old='("head", "http", "closing")',
        new='("head", "closing")',
    ),
    Rule(
        threat="clients that are gone",
        rule="silence over two pings ends a connection",
        where="appliance/drivers/network/websocket.py",
        test=(
            "tests/drivers/network/test_client_port.py::test_a_welcome_client"
            "_that_stays_silent_over_two_pings_is_let_go"
        ),
        old="        if not self._heard and not self._probed:",
        new="        if False:",
    ),
    Rule(
        threat="compression bombs",
        rule="compression is not offered",
        where="appliance/drivers/network/websocket.py",
        test=("tests/drivers/network/test_client_port.py::test_compression_is_not_offered"),
        old="            max_size=STRANGER_FRAME_SIZE_MAX,\n",
        new=(
            "            max_size=STRANGER_FRAME_SIZE_MAX,\n            extens"
            "ions=[__import__('websockets.extensions.permessage_deflate', fro"
            "mlist=['x']).ServerPerMessageDeflateFactory()],\n"
        ),
    ),
    Rule(
        threat="floods of small frames",
        rule="a few frames of a connection in a turn",
        where="appliance/base/limits.py",
        test=(
            "tests/drivers/network/test_client_port.py::test_a_flood_of_small"
            "_frames_holds_nobody_up"
        ),
        old="TURN_COST_MAX, TURN_COST_ALL_MAX = 16, 256",
        new="TURN_COST_MAX, TURN_COST_ALL_MAX = 1 << 40, 1 << 41",
    ),
    Rule(
        threat="sockets that never begin TLS",
        rule="who has said nothing makes room for the newest of them",
        where="appliance/drivers/network/entrance.py",
        test=(
            "tests/drivers/network/test_client_port_entrance.py"
            "::test_sockets_that_say_nothing_displace_each_other_and_nobody_else"
        ),
        old="        if self._silent.count >= STRANGERS_SILENT_MAX:",
        new="        if False:",
    ),
    Rule(
        threat="text that is none",
        rule="text frames are UTF-8",
        where="appliance/drivers/network/websocket.py",
        test=(
            "tests/drivers/network/test_client_port.py::test_text_that_is_not"
            "_utf8_ends_the_connection"
        ),
        old="        if self._is_text and not data.isascii():",
        new="        if False:",
    ),
    Rule(
        threat="pages of other sites",
        rule="pages of this site may connect",
        where="appliance/drivers/network/websocket.py",
        test=(
            "tests/drivers/network/test_client_port_entrance.py"
            "::test_handshakes_and_pages_for_others_are_refused_and_counted"
        ),
        old=("            or not hosts.may_connect(origin[0] if origin else None, host[0])\n"),
        new="",
    ),
    Rule(
        threat="a window given up within a batch",
        rule="what a batch remembers is forgotten then",
        where="appliance/cores/rooms/rooms.py",
        test=(
            "tests/cores/rooms/test_validator.py::test_a_window_that_goes_within_"
            "a_batch_takes_no_more_of_it"
        ),
        old=("        if evicted:\n            senders.clear()"),
        new=("        if False:\n            senders.clear()"),
    ),
    Rule(
        threat="a late retry is stored twice",
        rule="an old first message is refused",
        where="appliance/cores/rooms/validator.py",
        test=(
            "tests/cores/rooms/test_validator.py::test_a_retry_whose_window_was_g"
            "iven_up_is_not_stored_twice"
        ),
        old="        if not horizon_us:\n            return False",
        new="        return False",
    ),
    Rule(
        threat="one user fills the table of windows",
        rule="an author's own oldest goes",
        where="appliance/cores/rooms/windows.py",
        test=(
            "tests/cores/rooms/test_windows.py::test_one_author_fills_his_sha"
            "re_and_takes_from_nobody_else"
        ),
        old=("        if len(self._rows_of.get(author_id, ())) >= self.share:\n            return"),
        new="        if False:\n            return",
    ),
    Rule(
        threat="one user fills the table of rooms",
        rule="an author creates so many rooms",
        where="appliance/cores/rooms/validator.py",
        test=(
            "tests/cores/rooms/test_validator.py::test_an_author_makes_no_more_rooms_than_his_share"
        ),
        old="self._rooms.table.full or not self._windows.may_create(owner)",
        new="self._rooms.table.full",
    ),
    Rule(
        threat="a token that lives for ever",
        rule="tokens live as long as the setting allows",
        where="appliance/cores/edge/token.py",
        test=("tests/cores/edge/test_token.py::test_a_token_that_is_valid_for_too_long_is_refused"),
        old="        if expires_us - begin_us > self.life_s_max * _SECOND_US:",
        new="        if False:",
    ),
    Rule(
        threat="pages of history for many at once",
        rule="two pages are made in a beat",
        where="appliance/cores/edge/frames.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_few_pages_of_history_are"
            "_made_in_a_beat_and_all_in_the_end"
        ),
        old="                if self._pages_left <= 0:",
        new="                if False:",
    ),
    Rule(
        threat="large pages of history for many at once",
        rule="a large page is the last of its beat",
        where="appliance/cores/edge/frames.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_few_pages_of_history_are"
            "_made_in_a_beat_and_all_in_the_end"
        ),
        old="                self._pages_left = 0\n",
        new="                pass\n",
    ),
    Rule(
        threat="a flood behind a closing",
        rule="so many frames may come before a goodbye",
        where="appliance/drivers/network/websocket.py",
        test=(
            "tests/drivers/network/test_client_port.py::test_a_flood_behind_a"
            "_closing_is_passed_over_and_ended"
        ),
        old="        if self._last_frames <= 0:\n            self._server",
        new="        if False:\n            self._server",
    ),
    Rule(
        threat="refused messages pile up in memory as garbage",
        rule="an error that waits keeps nothing it was raised over",
        where="appliance/cores/edge/requests/sending.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_messages_that_were_refused_are_gone_at_once"
        ),
        old="sends.denied = error.with_traceback(None)",
        new="sends.denied = error",
    ),
    Rule(
        threat="what an attack took in memory stays taken",
        rule="a process that grew gives back what is free",
        where="appliance/drivers/host/slack.py",
        test=("tests/drivers/host/test_slack.py::test_a_process_that_grew_gives_back_what_is_free"),
        old="        self._libc.malloc_trim(0)\n",
        new="",
    ),
    Rule(
        threat="garbage that an attack left stays for ever",
        rule="a process that holds more than it once did collects all garbage",
        where="appliance/drivers/host/slack.py",
        test=(
            "tests/drivers/host/test_slack.py::"
            "test_what_a_peak_left_as_garbage_is_given_back_a_minute_later"
        ),
        old="        gc.collect()\n",
        new="        gc.collect(1)\n",
    ),
    Rule(
        threat="one connection holds all memory",
        rule="a connection holds 4 MiB",
        where="appliance/cores/edge/connections.py",
        test=(
            "tests/cores/edge/test_pressure.py::test_who_holds_most_is_closed"
            "_first_until_user_and_edge_are_within_bounds"
        ),
        old=("                size > limits.CONNECTION_HELD_MAX\n                or total"),
        new="                False\n                or total",
    ),
)
