"""How tests run something in a bare Debian 12 of theirs."""

# Its own mounts and processes; all of them end with this one.
NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
