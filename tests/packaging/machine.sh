# Boots a Debian with nothing installed but its base and systemd: a tree with a layer over it, in a
# network namespace.  machine.sh NAME TREE FOLDER NAMESPACE
# FOLDER gets the layer; what lies in its `upper` already is there from the first moment on.
set -eu
name=$1 tree=$2 folder=$3 namespace=$4
mkdir -p "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
exec sh "$(dirname "$0")/container.sh" "$name" "$folder/root" \
    --network-namespace-path="/run/netns/$namespace"
