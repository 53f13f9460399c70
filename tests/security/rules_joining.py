"""Rules of codes by which machines come into a site, as `rules_edge` has those of the client
port."""

from tests.security.rules_edge import Rule

JOINING = "appliance/drivers/network/joining.py"
INVITING = "appliance/node/inviting.py"
FOUNDING = "appliance/node/founding.py"
TESTS = "tests/commands/test_join.py::"
WIRED = "tests/roles/test_wired_joining.py::"
ONCE = WIRED + "test_a_machine_is_let_in_once_and_two_at_once_are_not"

RULES = (
    Rule(
        threat="a machine without a code comes into a site",
        rule="who joins shows the secret of a code",
        where=JOINING,
        test=TESTS + "test_codes_that_were_changed_are_refused",
        old="[each for each in self._invited if hmac.compare_digest(each.secret, secret)]",
        new="self._invited[:1]",
    ),
    Rule(
        threat="secrets of codes are tried at any rate",
        rule="a wrong secret is answered after a while",
        where=JOINING,
        test=TESTS + "test_codes_that_were_changed_are_refused",
        old="            await asyncio.sleep(_WRONG_S)\n",
        new="",
    ),
    Rule(
        threat="a code lets two machines in",
        rule="a code is used once",
        where=JOINING,
        test=TESTS + "test_a_code_is_used_once_and_free_again_when_its_machine_goes_away",
        old="        if each.joined is not None:",
        new="        if False:",
    ),
    Rule(
        threat="somebody answers in place of who made a code, and hears its secret",
        rule="the key that answers is that of the code",
        where=JOINING,
        test=TESTS + "test_codes_that_were_changed_are_refused",
        old="        if hashlib.sha256(spki).digest() != code.fingerprint:",
        new="        if False:",
    ),
    Rule(
        threat="a code of another site is used here",
        rule="the site of a code is that of who made it",
        where=JOINING,
        test=TESTS + "test_codes_that_were_changed_are_refused",
        old='        if asked.get("cluster", self._cluster) != self._cluster:',
        new="        if False:",
    ),
    Rule(
        threat="a machine is told a place that is another one's",
        rule="the site file names the key that the machine made",
        where=FOUNDING,
        test=TESTS + "test_a_machine_takes_what_is_the_sites_and_is_told_no_other_place",
        old="    if public_key not in [",
        new="    if False and public_key not in [",
    ),
    Rule(
        threat="a code that was made for one machine lets another one in",
        rule="an invitation names its machine",
        where=INVITING,
        test=TESTS + "test_a_code_is_for_one_machine_that_is_none_of_the_site",
        old='    if row["name"] != name:',
        new="    if False:",
    ),
    Rule(
        threat="an empty volume denies what a member acknowledged",
        rule="who is a member already is not let in again",
        where=INVITING,
        test=ONCE,
        old="    if known is not None and not await _is_outside(node, known.name):",
        new="    if False:",
    ),
    Rule(
        threat="a node that serves loses its place to another one",
        rule="a place is taken when nothing answers there by the lost node's key",
        where=INVITING,
        test=ONCE,
        old="        if shown == other.spki:",
        new="        if False:",
    ),
    Rule(
        threat="two machines that join at once have one place",
        rule="who joins has the place that the site file gives it",
        where=INVITING,
        test=ONCE,
        old="    if (other := node.site.nodes[joining.index]).public_key != joining.public_key:",
        new="    if (other := node.site.nodes[joining.index]) is None:",
    ),
    Rule(
        threat="two nodes tell of two machines for one place",
        rule="the log takes one description of a place",
        where="appliance/roles/operator/describing.py",
        test=ONCE,
        old="        client_id=device_of(node.site.cluster, joining.index),",
        new="        client_id=os.urandom(16),",
    ),
    Rule(
        threat="a description that no node can read ends all nodes",
        rule="a site file is read before it takes the place of another",
        where="appliance/roles/edge/site_growth.py",
        test="tests/roles/test_site_growth.py::"
        "test_who_would_use_the_ports_of_another_is_refused_and_told_once",
        old="        load_site(fresh)  # nobody",
        new="        # nobody",
    ),
)
