"""A code of a node that runs, for a machine that joins, in tests with real processes."""

from appliance.drivers.host.process import child_environment
from tests import forked
from tests.patience import HUNG_S
from tests.system.local_site import LocalSite, run, wait_until

_WAIT_S = 90.0


def done(*words: str) -> str:
    result = run(*words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class Invitation:
    """`tigerchat member invite` on a node, which waits for the machine that joins."""

    def __init__(self, site: LocalSite, node: int, name: str, *words: str) -> None:
        said = site.folder.parent / f"invite-{name}"
        command = ["member", "invite", name, "--node-folder", str(site.place(node)), *words]
        with said.open("wb") as out:
            self.process = forked.start(
                command, environment=child_environment(), output=out.fileno()
            )
        wait_until(lambda: "tigerchat join TC1-" in said.read_text(), _WAIT_S, said.read_text)
        self.said = said
        self.code = said.read_text().split("tigerchat join ")[1].split()[0]

    def ended(self) -> str:
        assert self.process.wait(HUNG_S) == 0, self.said.read_text()
        return self.said.read_text()
