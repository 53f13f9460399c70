"""The questions of a machine that starts from its image, and the steps that follow from answers."""

from dataclasses import replace

import pytest

from appliance.base.errors import ConfigurationError
from appliance.base.limits import SEGMENTS_MAX_DEFAULT
from appliance.cores.setup.machine import Begun, Disk, Machine
from appliance.cores.setup.steps import (
    DEVICE_FILE,
    DONE_FILE,
    NETWORK_FILE,
    PART_FILE,
    RULE_FILE,
    AwaitAddress,
    Bring,
    Run,
    ShowSecret,
    Write,
)
from appliance.cores.setup.wizard import LINE_SIZE_MAX, Wizard
from appliance.formats.join_code import JoinCode, encode_join_code

NVME = Disk("/dev/nvme0n1", "/dev/disk/by-id/nvme-M_1", 'ENV{ID_SERIAL}=="M_1"', 1 << 37, 5000)
OTHER = replace(NVME, name="/dev/sda", path="/dev/disk/by-id/ata-B", carries="an ext4 file system")
MACHINE = Machine((NVME, OTHER), ("eno1", "eno2"))
CODE = encode_join_code(JoinCode("10.0.0.1", 7499, bytes(15) + b"\1", bytes(32), bytes(16)))
ANSWERS = {
    "network": "dhcp",
    "disk": NVME.name,
    "machines": "3",
    "code": CODE,
    "lost": "/dev/sdb1",
}


def answered(machine: Machine = MACHINE, **given: str) -> tuple[Wizard, list[str]]:
    """All is answered, by what is given or usual; and what was asked, in order."""
    wizard, asked = Wizard(machine), list[str]()
    while (question := wizard.question) is not None:
        asked.append(question.key)
        usual = {"erase": given.get("disk", ""), "yes": "yes", "name": "tiger-1", "part": "new"}
        wizard.answer(given.get(question.key, {**ANSWERS, **usual}[question.key]))
    return wizard, asked


def commands(wizard: Wizard) -> list[tuple[str, ...]]:
    """What the node's user runs, without the program's path."""
    return [step.words[1:] for step in wizard.steps if isinstance(step, Run) and step.as_node]


def written(wizard: Wizard) -> dict[str, str]:
    return {step.path: step.text for step in wizard.steps if isinstance(step, Write)}


@pytest.mark.parametrize(
    ("part", "last"), [("new", "machines"), ("join", "code"), ("replace", "lost")]
)
def test_at_most_six_questions_whatever_the_machine_is_to_be(part: str, last: str) -> None:
    _, asked = answered(part=part)
    assert asked == ["name", "network", "disk", "part", last, "yes"]


def test_a_new_site_is_founded_on_the_disk_by_the_name_that_it_keeps() -> None:
    wizard, _ = answered(network="10.0.0.7/24 via 10.0.0.1 dns 10.0.0.2 on eno2", machines="1")
    (found,) = commands(wizard)
    assert found[0] == "found" and found[-4:] == ("--nodes", "1", "--segments-max", "4096")
    assert ("--device", NVME.path) in zip(found, found[1:], strict=False)
    assert "--erase" not in found and SEGMENTS_MAX_DEFAULT == 4096
    texts = written(wizard)
    assert texts["/etc/hostname"] == "tiger-1\n"
    assert texts[NETWORK_FILE] == (
        "[Match]\nName=eno2\n\n[Network]\nAddress=10.0.0.7/24\nGateway=10.0.0.1\nDNS=10.0.0.2\n"
    )
    assert NVME.match in texts[RULE_FILE] and 'GROUP="tigerchat"' in texts[RULE_FILE]
    assert f"DeviceAllow={NVME.path} rw\n" in texts[DEVICE_FILE]
    assert AwaitAddress("10.0.0.7") in wizard.steps
    assert written(answered(network="dhcp")[0])[NETWORK_FILE] == (
        "[Match]\nType=ether\n\n[Network]\nDHCP=yes\n"
    )


def test_a_small_disk_holds_what_fits() -> None:
    small = replace(NVME, segments=100)
    (found,) = commands(answered(Machine((small,), ("eno1",)))[0])
    assert found[-2:] == ("--segments-max", "100")
    wizard = Wizard(Machine((replace(NVME, segments=7),), ("eno1",)))
    wizard.answer("")
    wizard.answer("")
    with pytest.raises(ConfigurationError, match="too small"):
        wizard.answer(NVME.name)


def test_what_a_disk_carries_is_erased_only_when_its_name_is_typed_again() -> None:
    wizard, asked = answered(disk=OTHER.name)
    assert asked[2:4] == ["disk", "erase"]
    assert commands(wizard)[0].count("--erase") == 2
    wizard = Wizard(MACHINE)
    for line in ("", "", OTHER.name):
        wizard.answer(line)
    assert wizard.question is not None
    assert f"{OTHER.name} carries an ext4 file system" in wizard.question.lines[0]
    for line in ("", "yes", NVME.name):
        with pytest.raises(ConfigurationError, match="to lose all that is on it"):
            wizard.answer(line)


def test_the_secret_is_shown_before_the_machine_counts_as_set_up_and_then_the_node_starts() -> None:
    for part in ("new", "join", "replace"):
        *before, secret, done, start = answered(part=part)[0].steps
        assert secret == ShowSecret() and done == Write(DONE_FILE, "")
        assert start == Run(("systemctl", "start", "tigerchat.service"))
        assert not any(isinstance(step, ShowSecret) for step in before)


def test_a_lost_machine_is_recovered_and_never_made_as_of_a_new_site() -> None:
    wizard, _ = answered(part="replace")
    (recover,) = commands(wizard)
    assert recover[0] == "recover" and "--once" in recover
    steps = wizard.steps
    assert steps.index(Write(PART_FILE, "replace\n")) < steps.index(Bring("/dev/sdb1"))
    again, asked = answered(replace(MACHINE, begun=Begun.REPLACING))
    assert asked == ["name", "network", "disk", "yes"]
    assert commands(again) == [recover] and Bring("/dev/sdb1") not in again.steps


def test_a_lost_machine_is_replaced_by_a_code_and_a_cut_off_join_goes_on_without_one() -> None:
    wizard, asked = answered(part="replace", lost=CODE)
    assert asked == ["name", "network", "disk", "part", "lost", "yes"]
    (join,) = commands(wizard)
    assert join[:2] == ("join", CODE) and join[-1] == "--once"
    assert not any(isinstance(step, Bring) for step in wizard.steps)
    assert commands(answered(part="join")[0]) == [join]
    begun, asked = answered(replace(MACHINE, begun=Begun.JOINING))
    assert asked == ["name", "network", "disk", "yes"]
    (join,) = commands(begun)
    assert join[0] == "join" and CODE not in join and "--once" in join and NVME.path in join
    whole, asked = answered(replace(MACHINE, begun=Begun.CATCHING_UP))
    assert asked == ["name", "network", "yes"], "its volume is not made again"
    (join,) = commands(whole)
    assert join[0] == "join" and "--device" not in join


def test_a_setup_that_was_cut_off_goes_on_with_what_it_had_begun() -> None:
    site, asked = answered(replace(MACHINE, begun=Begun.SITE))
    assert asked == ["name", "network", "disk", "yes"]
    (words,) = commands(site)
    assert words[0] == "format" and "--new-site" in words and NVME.path in words
    volumes, asked = answered(replace(MACHINE, begun=Begun.VOLUMES))
    assert asked == ["name", "network", "yes"] and commands(volumes) == []
    assert ShowSecret() in volumes.steps and RULE_FILE not in written(volumes)


def test_a_no_at_the_end_begins_again_and_forgets() -> None:
    wizard, asked = Wizard(MACHINE), 0
    for line in ("one", "dhcp", NVME.name, "join", CODE, "no"):
        wizard.answer(line)
        asked += 1
    assert wizard.question is not None and wizard.question.key == "name" and asked == 6


@pytest.mark.parametrize(
    ("key", "lines", "why"),
    [
        ("name", ("-a", "a-", "A", "a b", "a" * 64, "ä", "a\nb"), "a name has 1 to 63"),
        ("network", ("dhcp via 10.0.0.1",), "tells gateway and name server"),
        ("network", ("10.0.0.7/24",), r"say on which: on eno1 \| eno2"),
        ("network", ("dhcp on eth9", "10.0.0.7/24 on eth9"), "there is no interface eth9"),
        ("network", ("10.0.0.7", "10.0.0.7 on eno1"), "names no machine|say on which"),
        ("network", ("10.0.0.0/24 on eno1", "10.0.0.255/24 on eno1"), "means all of"),
        ("network", ("ten on eno1", "300.0.0.1/24 on eno1"), "is no address"),
        ("network", ("10.0.0.7/24 on eno1 via 10.0.1.1", "10.0.0.7/24 on eno1 via 10.0.0.7"),
         "another machine of"),
        ("network", ("10.0.0.7/24 on eno1 dns me", "10.0.0.7/24 on eno1 via me"), "no address of"),
        ("network", ("dhcp on", "dhcp eno1 on", "10.0.0.7/24 gateway 10.0.0.1"), "say dhcp, or"),
        ("disk", ("", "/dev/vda", "nvme0n1"), "no free disk"),
        ("part", ("", "newer", "NEW"), "say new, join or replace"),
        ("machines", ("0", "7", "-3", "three", "³", "9" * 99), "say how many machines"),
        ("machines", ("2",), "live through the loss of neither"),
        ("code", ("", CODE[:-1], CODE.replace("A", "B", 1)), "no join code"),
        ("lost", ("/dev/\x1bsdb1",), "say a device such as"),
        ("lost", ("", "sdb1", CODE[:-1]), "no join code"),
        ("yes", ("y", "nope"), "say yes, or no"),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused_and_asked_again(
    key: str, lines: tuple[str, ...], why: str
) -> None:
    parts = {"machines": "new", "code": "join", "lost": "replace"}
    wizard = Wizard(MACHINE)
    usual = {**ANSWERS, "name": "a", "part": parts.get(key, "new")}
    while wizard.question is not None and wizard.question.key != key:
        wizard.answer(usual[wizard.question.key])
    question = wizard.question
    assert question is not None
    for line in lines:
        if not line and question.default:
            continue
        with pytest.raises(ConfigurationError, match=why):
            wizard.answer(line)
        assert wizard.question == question
    with pytest.raises(ConfigurationError, match="too long"):
        wizard.answer("x" * (LINE_SIZE_MAX + 1))


def test_a_machine_without_a_disk_for_messages_says_so() -> None:
    wizard = Wizard(Machine((), ("eno1",)))
    wizard.answer("")
    wizard.answer("")
    with pytest.raises(ConfigurationError, match="no disk for messages"):
        _ = wizard.question


def test_the_only_blank_disk_is_what_an_empty_line_means() -> None:
    wizard = Wizard(MACHINE)
    for line in ("", "", ""):
        wizard.answer(line)
    assert wizard.question is not None and wizard.question.key == "part"
