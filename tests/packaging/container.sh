# Boots the tree in ROOT as a container, in a mount namespace of its own.
# container.sh NAME ROOT OPTION...   OPTIONs are those of systemd-nspawn.
set -eu
name=$1 root=$2
shift 2
# A cgroup of its own in each hierarchy: containers must not share one.
for group in /sys/fs/cgroup /sys/fs/cgroup/*/; do
    if [ -w "$group/cgroup.procs" ]; then
        mkdir -p "$group/$name"
        echo $$ >"$group/$name/cgroup.procs" || true
    fi
done
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn
exec systemd-nspawn --quiet --directory="$root" --machine="$name" --boot --register=no --keep-unit \
    --link-journal=no --capability=CAP_IPC_LOCK,CAP_SYS_NICE,CAP_SYS_RESOURCE \
    --resolv-conf=off --timezone=off "$@" systemd.log_target=journal </dev/null
