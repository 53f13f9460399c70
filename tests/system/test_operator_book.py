"""What docs/operations.md says of moving, copying and bringing back has a test that does it."""

from tests.system.local_site import TOP

TESTS_OF = {
    "move a node to another folder or disk": "a_node_whose_stopped_folder_was_moved_goes_on",
    "move a node to another machine": "a_node_moves_to_another_address_with_its_folder",
    "bring back a lost or broken volume": "an_older_copy_of_a_volume_is_refused_by_name",
    "bring back a lost machine": "recover_of_a_node_set_up_anew_is_refused_while_the_old",
    "bring back a volume of a group of one": "system/test_operator_apart.py::one_of_two_comes_back",
}
ELSEWHERE = {"keep what was said whatever happens"}  # tests/system/test_shipping.py
# What the book says elsewhere of volumes: a sentence, and who walks it.
WALKED = {
    "`mv F/shard-S F/shard-S.broken`": "a_volume_moved_away_under_its_replica_is_recovered",
    "put the same folder back, or `tigerchat recover`": "a_volume_that_was_moved_away_and_put_back",
    "an empty file system mounted at `F/shard-S`": "recover_fills_an_empty_disk_mounted",
    "the old process on the moved files": "recover_is_refused_while_the_replica_of_a_moved",
    "a node that was moved elsewhere": "recover_of_a_node_set_up_anew_is_refused_while_the_old",
    "When nobody answers, that proves nothing": "a_node_set_up_anew_is_not_formatted_while",
    "the volume is an older copy": "an_older_copy_of_a_volume_is_refused_by_name",
    "the volume was made as of a new site": "a_node_made_anew_as_of_a_new_site_halts",
    "the others go on. Its reason is": "system/test_operator_apart.py::a_node_that_lost_one_of_its",
    "of three replicas two are lost": "system/test_members.py::two_of_three_wiped_nodes",
    "Changes are operations of each shard's log": "system/test_members.py::a_node_joins_votes",
    "`kill -9` is safe at any moment": "system/test_kill.py::thirty_kills_lose",
    "power goes in the middle of a write": "system/test_power_cuts.py::nothing_acknowledged_is",
    "`tigerchat retention set 90`": "system/test_retention.py::a_shard_that_keeps_a_while",
    "it halts with `DISK_FULL`": "system/test_full_disks.py::one_full_disk_is_one_replica_s",
    "keeps the\nreserve": "system/test_full_disks.py::when_all_disks_are_about_to_be_full",
    "Interrupted, it is completed": "commands/test_format.py::a_killed_format_is_completed_by",
    "completed, it is refused for ever": "commands/test_format.py::a_lost_volume_is_never_made",
    "ports of a site that exists": "commands/test_start.py::ports_of_a_formatted_site_are_moved",
    "copy that from the former one": "system/test_moved_target.py::what_the_log_has_dropped_is",
}


def test_each_way_to_move_copy_and_bring_back_has_its_test():
    """Who writes a new row says here which test walks it."""
    book = (TOP / "docs" / "operations.md").read_text(encoding="utf-8")
    section = book.split("### Moving and copying")[1].split("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    known = [*TESTS_OF, *ELSEWHERE]
    assert [row for row in rows[1:] if not any(map(row.startswith, known))] == []
    assert len(rows) - 1 == len(known)
    assert [sentence for sentence in WALKED if sentence not in book] == []
    for name in (*TESTS_OF.values(), *WALKED.values()):
        file, _, words = name.rpartition("::")
        path = TOP / "tests" / (file or "system/test_operator_acts.py")
        assert f"def test_{words}" in path.read_text(encoding="utf-8"), name
