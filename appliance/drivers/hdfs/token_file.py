"""The file of a delegation token: for this user alone."""

from pathlib import Path

from appliance.base.errors import TargetRefused


def read_token(path: Path) -> str:
    """As it is now; whoever renews it writes it anew. Raises TargetRefused."""
    try:
        if path.stat().st_mode & 0o077:
            raise TargetRefused(f"{path} can be read by others: `chmod 600 {path}`")
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TargetRefused(
            f"{path}: cannot be read; put the delegation token there, for this user alone"
        ) from error
