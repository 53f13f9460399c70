"""Whose a node's folder is: root, who types a verb on a machine, works there as that user.

Under systemd a node runs as a user of its own. What root made in the node's folder that user could
neither read nor change, and the node would not start again.
"""

import os
import sys
from pathlib import Path

from appliance.drivers.host.process import begin_anew_as, user_name


def work_as_owner(folder: Path) -> None:
    """For root alone: begin the command anew as the user who owns `folder`, or what it is going to
    lie in. Whoever is called first: nothing is kept."""
    if os.geteuid() != 0:
        return
    path = folder.absolute()
    while not path.exists():
        path = path.parent
    owner = path.stat()
    if owner.st_uid != 0:
        told = f"tigerchat: goes on as {user_name(owner.st_uid)}, who owns {path}"
        print(told, file=sys.stderr, flush=True)
        begin_anew_as(owner.st_uid, owner.st_gid)
