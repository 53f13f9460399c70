# Boots a container whose root is a base tree with a layer over it: for tests, in a mount namespace
# of its own.  boot.sh NAME TREE FOLDER EXECUTABLE NODE UNITS ENABLED OPTION...
# ENABLED are lines of "TARGET UNIT". FOLDER gets the layer; NODE becomes /var/lib/tigerchat/node, EXECUTABLE /usr/lib/tigerchat.
# OPTIONs are those of systemd-nspawn.
set -eu
name=$1 tree=$2 folder=$3 executable=$4 node=$5 units=$6 enabled=$7
shift 7
mkdir -p "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
root=$folder/root
cp "$units"/tigerchat* "$root/usr/lib/systemd/system/"
cp "$units"/sysusers.d/* "$root/usr/lib/sysusers.d/"
cp "$units"/tmpfiles.d/* "$root/usr/lib/tmpfiles.d/"
mkdir -p "$root/usr/lib/tigerchat" "$root/var/lib/tigerchat/node"
echo "$enabled" | while read -r target unit; do
    mkdir -p "$root/etc/systemd/system/$target.wants"
    template=$(echo "$unit" | sed 's/@.*\./@./')
    ln -sf "/usr/lib/systemd/system/$template" "$root/etc/systemd/system/$target.wants/$unit"
done
mkdir -p "$root/etc/systemd/system/tigerchat-replica@.service.d"
printf '[Service]\nWatchdogSec=3\nTimeoutStopSec=2\n' \
    >"$root/etc/systemd/system/tigerchat-replica@.service.d/soon.conf"
mkdir -p "$root/etc/credstore"
printf "of the machine's store" >"$root/etc/credstore/ship.token"
chmod 600 "$root/etc/credstore/ship.token"
systemd-sysusers --root="$root" tigerchat.conf 2>"$folder/sysusers"
chown -R "$(awk -F: '$1 == "tigerchat" { print $3 ":" $4 }' "$root/etc/passwd")" "$node"
exec sh "$(dirname "$0")/container.sh" "$name" "$root" \
    --bind-ro="$executable:/usr/lib/tigerchat" --bind="$node:/var/lib/tigerchat/node" "$@"
