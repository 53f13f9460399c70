"""Rules of console, peer port, files, archives, texts and units, as `rules_edge` has those of the
client port."""

from tests.security.rules_edge import Rule

PORT = "appliance/drivers/network/operator_port.py"
PORT_TESTS = "tests/drivers/network/test_operator_port.py::"
DOOR = "appliance/drivers/host/operator_door.py"
DOOR_TESTS = "tests/drivers/host/test_operator_door.py::"
OPERATORS = "tests/security/test_operators.py::"
LINK_TESTS = "tests/drivers/network/test_link.py::"
KEYS = "tests/security/test_keys.py::"
UNITS = "tests/security/test_units.py::"
MBOX = "tests/formats/test_archive_mbox.py::"
SLACK = "tests/formats/test_archive_slack.py::"
SHOWN = "tests/base/test_printable.py::"

RULES = (
    Rule(
        threat="a page of another site acts as the operator",
        rule="the console takes requests of its own origin",
        where=PORT,
        test=PORT_TESTS + "test_host_and_origin_are_judged",
        old="        if any(origin.decode",
        new="        if False and any(origin.decode",
    ),
    Rule(
        threat="a page of another site acts without an Origin",
        rule="the browser's word for another site counts too",
        where=PORT,
        test=PORT_TESTS + "test_host_and_origin_are_judged",
        old="        if any(site not in",
        new="        if False and any(site not in",
    ),
    Rule(
        threat="a foreign name is made to lead to the console",
        rule="hosts are those that operators know",
        where=PORT,
        test=PORT_TESTS + "test_host_and_origin_are_judged",
        old="        if not self._known(host):",
        new="        if False:",
    ),
    Rule(
        threat="one address takes all connections of the console",
        rule="an address has a share of them",
        where=PORT,
        test=PORT_TESTS + "test_an_address_has_a_share_of_the_connections_and_another_one_gets_in",
        old="            if self._per_group[group] >= OPERATOR_CONNECTIONS_PER_ADDRESS_MAX:",
        new="            if False:",
    ),
    Rule(
        threat="many addresses push an operator's page out",
        rule="connections with a session give way last",
        where=PORT,
        test=PORT_TESTS
        + "test_when_all_connections_are_taken_who_holds_most_gives_way_and_no_session_does",
        old="for visitor in self._visitors if not visitor.signed_in]",
        new="for visitor in self._visitors]",
    ),
    Rule(
        threat="requests to the console that never end",
        rule="a request has its time, whatever drips in",
        where=PORT,
        test=PORT_TESTS + "test_a_connection_that_drips_bytes_is_closed_as_well",
        old="now - self._waits_since > OPERATOR_REQUEST_S",
        new="False",
    ),
    Rule(
        threat="answers of the console that nobody takes",
        rule="what is sent must be taken in time",
        where=PORT,
        test=PORT_TESTS + "test_who_does_not_take_what_is_sent_is_closed",
        old="            return now - self._stuck_since > OPERATOR_TAKE_S",
        new="            return False",
    ),
    Rule(
        threat="a form of another site signs in",
        rule="a secret comes as JSON that says so",
        where=PORT,
        test=OPERATORS + "test_a_secret_counts_only_in_a_short_body_that_says_it_is_json",
        old='    if request.headers.get("content-type") != "application/json":',
        new="    if False:",
    ),
    Rule(
        threat="guessing the console's secret",
        rule="five wrong ones shut the door",
        where=DOOR,
        test=DOOR_TESTS + "test_the_door_shuts_after_wrong_secrets_and_opens_again",
        old="        if failures.count >= FAILURES_MAX:",
        new="        if False:",
    ),
    Rule(
        threat="strangers lock the operator out",
        rule="wrong secrets count for their address",
        where=DOOR,
        test=DOOR_TESTS + "test_wrong_secrets_shut_the_door_for_their_own_address_alone",
        old="        failures = self._failures.get(address)\n",
        new="        failures = next(iter(self._failures.values()), None)\n",
    ),
    Rule(
        threat="the operator at the machine is locked out",
        rule="the machine itself is never shut out",
        where=DOOR,
        test=DOOR_TESTS + "test_the_machine_itself_is_never_shut_out",
        old="        if address in THIS_MACHINE:",
        new="        if False:",
    ),
    Rule(
        threat="an old secret is found in a journal",
        rule="a secret lives for 30 minutes",
        where=DOOR,
        test=DOOR_TESTS
        + "test_a_secret_that_nobody_used_for_half_an_hour_opens_nothing"
        + "_and_is_followed_by_a_new_one",
        old="        if self._now() >= self._expires:",
        new="        if False:",
    ),
    Rule(
        threat="the hash of a secret is guessed",
        rule="argon2id at its full cost",
        where="appliance/roles/console.py",
        test=OPERATORS + "test_the_console_keeps_its_secret_under_a_hash_that_is_dear_to_guess",
        old="argon2.PasswordHasher()",
        new="argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)",
    ),
    Rule(
        threat="figures tell a stranger how to attack",
        rule="figures are for the key or a session",
        where="appliance/drivers/network/metrics.py",
        test=OPERATORS + "test_figures_are_for_the_key_and_for_who_is_signed_in",
        old="        if not hmac.compare_digest",
        new="        if False and not hmac.compare_digest",
    ),
    Rule(
        threat="reasons of health tell a stranger what is weak",
        rule="strangers are told one word",
        where="appliance/drivers/network/pages.py",
        test=OPERATORS + "test_strangers_are_told_in_one_word_that_a_node_does_not_serve",
        old='        word = "serving" if serves else "unavailable"',
        new='        word = self._health() or "serving"',
    ),
    Rule(
        threat="a stolen ticket stands for a certificate",
        rule="no tickets between nodes",
        where="appliance/drivers/network/tls.py",
        test=LINK_TESTS + "test_no_ticket_is_given_that_could_stand_for_a_certificate",
        old="    context.num_tickets = 0  # every connection shows its certificate",
        new="    context.num_tickets = 2  # every connection shows its certificate",
    ),
    Rule(
        threat="an older TLS is asked for",
        rule="TLS 1.3 only",
        where="appliance/drivers/network/tls.py",
        test=LINK_TESTS + "test_tls_1_2_is_refused",
        old="    context.minimum_version = ssl.TLSVersion.TLSv1_3",
        new="    context.minimum_version = ssl.TLSVersion.TLSv1_2",
    ),
    Rule(
        threat="a node answers in another one's place",
        rule="the key must be that of the node that was dialled",
        where="appliance/drivers/network/tls.py",
        test=LINK_TESTS + "test_another_node_at_the_dialled_address_is_refused",
        old="    return pins.get(spki_digest(certificate))",
        new="    return next(iter(pins.values()))",
    ),
    Rule(
        threat="silent strangers keep members out",
        rule="the newest comer gets in",
        where="appliance/drivers/network/link.py",
        test=LINK_TESTS + "test_strangers_who_stay_silent_keep_no_member_out",
        old='            self._longest_of_most(waiting).abort("gave_way")',
        new='            return "too_many_handshakes"',
    ),
    Rule(
        threat="strangers push a member's handshake out",
        rule="addresses of members give way last",
        where="appliance/drivers/network/link.py",
        test=LINK_TESTS
        + "test_who_gives_way_is_the_oldest_stranger_of_the_address_that_holds_most",
        old="if other.address not in self._known] or waiting",
        new="] or waiting",
    ),
    Rule(
        threat="another user of the machine speaks to a node",
        rule="both ends look at the other's user",
        where="appliance/drivers/network/local.py",
        test="tests/drivers/network/test_local.py"
        "::test_processes_of_other_users_are_strangers_at_both_ends",
        old="    return uid in (0, os.getuid())",
        new="    return True",
    ),
    Rule(
        threat="others on the machine read a private key",
        rule="the start refuses a key that others may use",
        where="appliance/drivers/host/node_folder.py",
        test=KEYS + "test_a_key_that_others_may_use_stops_the_start",
        old="    if path.stat().st_mode & 0o077:",
        new="    if False:",
    ),
    Rule(
        threat="others on the machine sign tokens",
        rule="no token is signed with a key that others may read",
        where="appliance/drivers/chat/access.py",
        test=KEYS + "test_a_token_is_not_signed_with_a_key_that_others_may_read",
        old="        if path.stat().st_mode & 0o077:",
        new="        if False:",
    ),
    Rule(
        threat="a delegation token is read on the way",
        rule="no token over http unless said",
        where="appliance/drivers/hdfs/open_target.py",
        test=KEYS + "test_a_delegation_token_goes_over_plain_http_only_when_that_is_said",
        old='    if token and parts.scheme == "http" and',
        new='    if False and parts.scheme == "http" and',
    ),
    Rule(
        threat="everybody on the machine reads what was shipped",
        rule="files of a folder target are for owner and group",
        where="appliance/drivers/hdfs/folder.py",
        test=KEYS + "test_what_is_shipped_to_a_folder_is_for_owner_and_group",
        old="                os.fchmod(file.fileno(), FILE_MODE)\n",
        new="",
    ),
    Rule(
        threat="a mail that takes hours to read",
        rule="headers that cost the square of their size are bounded",
        where="appliance/formats/archive/mbox.py",
        test=MBOX + "test_mbox_takes_time_in_proportion_to_the_size_of_a_hostile_mail",
        old="        if len(found[0]) > ARCHIVE_DESCRIPTION_SIZE_MAX:",
        new="        if False:",
    ),
    Rule(
        threat="a mail of parts in parts in parts",
        rule="a mail has so many containers",
        where="appliance/formats/archive/mbox.py",
        test=MBOX + "test_mbox_refuses_more_containers_than_a_mail_can_need",
        old="    if containers > ARCHIVE_CONTAINERS_MAX:",
        new="    if False:",
    ),
    Rule(
        threat="a zip bomb",
        rule="a zip is bounded in ratio and sum",
        where="appliance/formats/archive/slack.py",
        test=SLACK
        + "test_slack_zip_that_unpacks_to_a_hundred_times_its_size_is_refused_as_a_whole",
        old="        self.left -= len(raw)\n",
        new="",
    ),
    Rule(
        threat="text that commands a terminal",
        rule="control characters and turning marks are replaced",
        where="appliance/base/printable.py",
        test=SHOWN + "test_what_could_command_a_terminal_is_replaced",
        old="\\x7f-\\x9f\\u2028",
        new="\\u2028",
    ),
    Rule(
        threat="JSON that commands a terminal",
        rule="JSON is printable ASCII",
        where="appliance/base/printable.py",
        test=SHOWN + "test_json_is_printable_ascii_and_says_the_same",
        old="    return json.dumps(value)",
        new="    return json.dumps(value, ensure_ascii=False)",
    ),
    Rule(
        threat="a cell that a spreadsheet computes",
        rule="no cell of a CSV file is a formula",
        where="appliance/base/printable.py",
        test=SHOWN + "test_no_cell_is_a_formula",
        old="""    return "'" + shown if _FORMULA.match(text) else shown""",
        new="    return shown",
    ),
    Rule(
        threat="a node that was taken over takes the machine",
        rule="units filter system calls",
        where="systemd/tigerchat-edge@.service",
        test=UNITS + "test_systemd_judges_each_unit_as_little_exposed",
        old="SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @keyring @obsolete\n",
        new="",
    ),
    Rule(
        threat="keys in a memory image on disk",
        rule="units leave no core dumps",
        where="systemd/tigerchat-replica@.service",
        test=UNITS + "test_no_unit_leaves_keys_in_a_memory_image_or_takes_the_machines_memory",
        old="LimitCORE=0\n",
        new="",
    ),
)
