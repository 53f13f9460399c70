"""Rules of a farm: who may act on it, whose word counts, and which farm a member belongs to."""

from tests.security.rules_edge import Rule

POSTING = "appliance/roles/farm/posting.py"
LISTENER = "appliance/roles/farm/listener.py"
DIRECTORY = "appliance/cores/directory/directory.py"
CHANGES = "appliance/cores/raft/membership.py"
NODE = "appliance/cores/raft/node.py"
POSTS = "tests/roles/farm/test_farm_posting.py::"
MAY_NOT = POSTS + "test_who_may_not_post_it_hears_what_it_needs"
RAW = (
    "tests/roles/farm/test_farm_hostile.py"
    "::test_no_stranger_closes_a_members_connection_where_nobody_logs_in"
)
SITE_USERS = "tests/roles/farm/test_site_users.py::"
TIME = "tests/cores/directory/test_log_time.py::"
OF_BEFORE = TIME + "test_a_date_of_before_that_no_clock_could_have_holds_nobody_back"
LEAVING = "tests/cores/raft/test_leaving.py::"
TWO = "tests/cores/raft/test_two_farms.py::"
FIRST_FARM = TWO + "test_an_empty_member_joins_the_farm_that_asks_first_and_no_other"

RULES = (
    Rule(
        threat="whoever may post keeps nodes out of a farm, or moves its shards",
        rule="acts are for administrators",
        where=POSTING,
        test=MAY_NOT,
        old="        return 0 if allowed else ACT_NOT_ALLOWED",
        new="        return 0",
    ),
    Rule(
        threat="a member that was taken over keeps others out of its farm",
        rule="where there is an administrator, members do not act",
        where=POSTING,
        test=MAY_NOT,
        old="(user.role == MEMBER and not administrators)",
        new="user.role == MEMBER",
    ),
    Rule(
        threat="a client of a farm tells how a node is",
        rule="statuses are for members",
        where=POSTING,
        test=MAY_NOT,
        old="    return 0 if allowed else STATUS_NOT_ALLOWED",
        new="    return 0",
    ),
    Rule(
        threat="a member tells how another one is",
        rule="a member posts its own status",
        where=POSTING,
        test=MAY_NOT,
        old="    if user.id and poster not in (None, user.id):",
        new="    if False:",
    ),
    Rule(
        threat="an act that is a status as well",
        rule="an administrator posts no status",
        where=POSTING,
        test=MAY_NOT,
        old='        if allowed and user.role == ADMINISTRATOR and "meta" in document:',
        new="        if False:",
    ),
    Rule(
        threat="a guest is let in by who is no member",
        rule="members alone tell of guests",
        where=POSTING,
        test=MAY_NOT,
        old="    if GUEST in config_of(document):",
        new="    if False:",
    ),
    Rule(
        threat="a node that was taken out of a farm comes in again by itself",
        rule="whom an administrator took out no member adds",
        where=POSTING,
        test=POSTS + "test_whom_an_administrator_took_out_no_member_takes_in",
        old="    return any(server_id in directory.departed[1] for server_id in added)",
        new="    return False",
    ),
    Rule(
        threat="a machine that was let in signs directories",
        rule="only whom the site's offline key names is there to be chosen",
        where="appliance/roles/farm/figures.py",
        test=SITE_USERS + "test_only_whom_the_sites_key_names_is_there_to_be_chosen_as_publisher",
        old="    return node.settings.farm_publish if may_sign(node) else PUBLISH_OFF",
        new="    return node.settings.farm_publish",
    ),
    Rule(
        threat="a node logs in to the farm as another one by its own password",
        rule="the passwords of those that came by codes are all different",
        where="appliance/roles/farm/site_users.py",
        test=SITE_USERS
        + "test_passwords_follow_from_the_first_members_secret_and_are_all_different",
        old="_PASSWORD + name.encode()",
        new="_PASSWORD",
    ),
    Rule(
        threat="the key of a guest is replaced",
        rule="of the guests under one id the first counts",
        where=DIRECTORY,
        test=(
            "tests/cores/directory/test_directory.py"
            "::test_of_the_guests_under_one_id_the_first_counts"
        ),
        old=' and guest["id"] not in self.admitted:',
        new=":",
    ),
    Rule(
        threat="whoever may post tells what time it is in the log",
        rule="the time is put there by who leads",
        where=POSTING,
        test=POSTS + "test_nobody_else_puts_a_time_into_the_log",
        old="        return APPEND_TIME_POSTED",
        new="        return 0",
    ),
    Rule(
        threat="one date of the far future silences a node for ever",
        rule="a date that no clock could have is refused",
        where=POSTING,
        test=POSTS + "test_a_date_that_no_clock_could_have_is_refused_and_silences_nobody",
        old="        return DATE_IMPOSSIBLE",
        new="        return 0",
    ),
    Rule(
        threat="such a date that another leader took",
        rule="nobody takes it from the log",
        where=DIRECTORY,
        test=TIME + "test_a_date_that_no_clock_could_have_is_not_taken",
        old="date is None or self._is_impossible(index, date):",
        new="date is None:",
    ),
    Rule(
        threat="such a date in a log of before",
        rule="it holds nobody back",
        where=DIRECTORY,
        test=OF_BEFORE,
        old="        return date > than or than > self.date_ms_max(self.time.told_ms)",
        new="        return date > than",
    ),
    Rule(
        threat="after an act of such a date no other one counts",
        rule="the next act is later than what a clock could have said",
        where=DIRECTORY,
        test=OF_BEFORE,
        old="        return max((date for date in acts if date <= most), default=0)",
        new="        return max(acts, default=0)",
    ),
    Rule(
        threat="one clock that is ahead makes all statuses old",
        rule="a step of the log's time is a period at most",
        where="appliance/cores/directory/log_time.py",
        test=TIME + "test_where_no_leader_tells_the_time_one_clock_makes_no_status_old",
        old="min(before_ms + later_ms, self.now_ms + step_ms_max)",
        new="before_ms + later_ms",
    ),
    Rule(
        threat="strangers push a member's connection out where nobody logs in",
        rule="a member's connection gives way to nobody",
        where=LISTENER,
        test=RAW,
        old="        idle = [v for v in there if not v.of_member and",
        new="        idle = [v for v in there if",
    ),
    Rule(
        threat="connections that say nothing push out who speaks, where nobody logs in",
        rule="who said nothing yet gives way first",
        where=LISTENER,
        test=RAW,
        old="key=lambda visitor: (visitor.said, visitor.used))",
        new="key=lambda visitor: visitor.used)",
    ),
    Rule(
        threat="members in any number, where nobody logs in",
        rule="as many connections are members' as there can be servers",
        where=LISTENER,
        test=RAW,
        old="visitor.of_member = sum(v.of_member for v in there) < FARM_SERVERS_MAX",
        new="visitor.of_member = True",
    ),
    Rule(
        threat="another farm asks a joiner to join",
        rule="an empty member stays with the farm that asked first",
        where=CHANGES,
        test=FIRST_FARM,
        old="    if is_another_farm(m, told):",
        new="    if False:",
    ),
    Rule(
        threat="a leader of another farm has a joiner follow it",
        rule="a joiner hears leaders of its own farm",
        where=NODE,
        test=FIRST_FARM,
        old="    if membership.is_stranger(m, request):",
        new="    if False:",
    ),
    Rule(
        threat="entries of another farm come into a joiner's log",
        rule="a joiner takes entries of its own farm",
        where=CHANGES,
        test=FIRST_FARM,
        old="    if is_stranger(m, request):",
        new="    if False:",
    ),
    Rule(
        threat="a second leader of a term is followed",
        rule="in one term one member leads",
        where=NODE,
        test=TWO + "test_a_second_leader_of_a_term_is_named_and_not_followed",
        old='    return "second_leader_of_term" if known',
        new='    return "" if known',
    ),
    Rule(
        threat="a removal leaves members that can elect nobody",
        rule="none begins without a majority of those who would stay",
        where=CHANGES,
        test=LEAVING + "test_no_removal_begins_while_those_who_would_stay_are_no_majority",
        old="    if not can_do_without(m, server_id):\n        return",
        new="    if False:\n        return",
    ),
    Rule(
        threat="a leaver departs though its removal is not committed",
        rule="it is out when somebody says so",
        where=CHANGES,
        test=LEAVING + "test_among_members_of_ours_silence_is_no_end_though_the_others_could_go_on",
        old="    if not ours and m.is_quorum(",
        new="    if m.is_quorum(",
    ),
)
