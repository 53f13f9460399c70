"""A directory with the signature of the node that publishes it, and what a reader checks.

    delegation   signed by the site's offline key: which node's key may sign, by node id
    directory    signed by one of those keys; names the publisher's id, term and version

No secret travels through the log. A reader refuses a version below one it has seen, so an old
publisher that has not heard of its successor does no harm.
"""

from typing import Any

from appliance.base.errors import DirectoryRefused
from appliance.base.json_text import parse_json
from appliance.base.limits import FARM_DIRECTORY_SIZE_MAX
from appliance.base.signature import CONTEXT_DELEGATION, CONTEXT_DIRECTORY, SigningKey, verify
from appliance.cores.directory.directory import canonical


def sign_delegation(key: SigningKey, cluster: str, keys: dict[int, bytes]) -> dict[str, Any]:
    """`keys`: public key of each node that may publish, by its id."""
    rows = {str(node): public.hex() for node, public in sorted(keys.items())}
    body = {"cluster": cluster, "keys": rows}
    return {**body, "signature": key.sign(CONTEXT_DELEGATION, canonical(body)).hex()}


def sign_directory(key: SigningKey, content: dict[str, Any], delegation: dict[str, Any]) -> bytes:
    """What is handed out: content, delegation and signature, one line of JSON."""
    signature = key.sign(CONTEXT_DIRECTORY, canonical(content)).hex()
    return canonical({"content": content, "delegation": delegation, "signature": signature})


def open_directory(
    data: bytes, *, cluster: str, offline: bytes, version_least: int
) -> dict[str, Any]:
    """The content, once everything fits. DirectoryRefused: why it does not, by a word.

    `offline`: the site's public key; `version_least`: the highest version seen.
    """
    if len(data) > FARM_DIRECTORY_SIZE_MAX:
        raise DirectoryRefused("too_large", f"a directory of {len(data)} bytes")
    try:
        whole = parse_json(data)
        content, delegation = whole["content"], whole["delegation"]
        body = {"cluster": delegation["cluster"], "keys": delegation["keys"]}
        public = bytes.fromhex(delegation["keys"][str(content["publisher"])])
        signatures = (bytes.fromhex(delegation["signature"]), bytes.fromhex(whole["signature"]))
        version = content["version"]
        names = (body["cluster"], content["cluster"])
        in_one_form = isinstance(version, int) and canonical(whole) == data
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DirectoryRefused("malformed", "it is no signed directory") from error
    if not in_one_form:
        raise DirectoryRefused("malformed", "it is not in its one form")
    if names != (cluster, cluster):
        raise DirectoryRefused("cluster", f"it belongs to {names[1]!r}")
    if not verify(offline, CONTEXT_DELEGATION, canonical(body), signatures[0]):
        raise DirectoryRefused("delegation", "its keys are not signed by the site")
    if not verify(public, CONTEXT_DIRECTORY, canonical(content), signatures[1]):
        raise DirectoryRefused("signature", "its signature does not fit")
    if version < version_least:
        raise DirectoryRefused("version", f"version {version}, {version_least} was seen before")
    found: dict[str, Any] = content
    return found
