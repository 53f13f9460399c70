"""Descriptors of this process: how many it may have, and how many clients they are enough for."""

import resource

from appliance.base.limits import DESCRIPTORS_RESERVED


def files_max() -> int | None:
    """How many files this process may have open; None: as many as it likes."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def clients_max(wanted: int, files: int | None) -> int:
    """How many of the `wanted` clients may be here at once, a descriptor each, so that the rest of
    the process is never in want of one: mapped segments, links, whatever it opens later. `files`
    may be open; where these are few, half of them are the clients'."""
    if files is None:
        return wanted
    return max(1, min(wanted, files - min(DESCRIPTORS_RESERVED, files // 2)))
