#!/bin/sh
# Prints the Python that runs the peers: $PEERS_PYTHON; else a virtual
# environment under BUILD/peers, made once with pip; else Debian's, if
# python3-torch is or can be installed. Prints nothing when none is to be had.
# Usage: peers.sh BUILD
set -u
venv=$1/peers

say() {
    echo "bench: $*" >&2
}
has_torch() {
    "$1" -c 'import torch' >/dev/null 2>&1
}
found() {
    echo "$1"
    exit 0
}

if [ -n "${PEERS_PYTHON:-}" ]; then
    has_torch "$PEERS_PYTHON" && found "$PEERS_PYTHON"
    say "PEERS_PYTHON=$PEERS_PYTHON cannot import torch"
    exit 1
fi
has_torch "$venv/bin/python" && found "$venv/bin/python"
# A virtual environment that failed once is not tried again.
if [ ! -e "$venv" ] && python3 -m venv "$venv" >/dev/null 2>&1; then
    pip="$venv/bin/python -m pip --quiet --disable-pip-version-check install"
    say 'installing PyTorch for the CPU with pip'
    $pip --timeout 10 --retries 1 torch numpy \
        --index-url https://download.pytorch.org/whl/cpu >&2 || {
        say 'only the large wheel with GPU libraries is in reach: some 5 GB'
        $pip torch numpy >&2
    }
    has_torch "$venv/bin/python" && found "$venv/bin/python"
fi
has_torch /usr/bin/python3 && found /usr/bin/python3
if [ "$(id -u)" = 0 ]; then
    say "installing Debian's python3-torch"
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        install python3-torch </dev/null >&2
    has_torch /usr/bin/python3 && found /usr/bin/python3
fi
exit 0
