#!/bin/sh
# Installs the Debian packages that are missing, and says so; does nothing,
# fast, when all are there. Usage: setup.sh [lint | fuzz]
set -eu

packages='gcc libc6-dev make lua5.4 liblua5.4-dev libdnnl-dev libedit-dev
  libjansson-dev libzip-dev libpng-dev libturbojpeg0-dev zlib1g-dev
  librandom123-dev lua-busted lua-check dataset-fashion-mnist
  bible-kjv bible-kjv-text libopenblas-openmp-dev
  libprotobuf-c-dev protobuf-c-compiler libonnx-dev libonnx-testdata lua-yaml
  libutf8proc-dev libpcre2-dev strace cmark-gfm tidy mandoc
  dpkg-dev libjs-dygraphs chromium'
[ "${1:-}" = lint ] && packages="$packages clang-format git"
[ "${1:-}" = fuzz ] && packages="$packages clang libclang-rt-14-dev llvm"

missing=
for p in $packages; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || :)
    [ "$state" = installed ] || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null; then
        as_root=sudo
    else
        echo "lupine: please install, as root: apt-get install$missing" >&2
        exit 1
    fi
fi

root() {
    $as_root env DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}
update() {
    echo 'lupine: updating the package lists'
    root apt-get -qq update
}
# shellcheck disable=SC2086
install() {
    root apt-get -qq -y --no-install-recommends install $missing
}

echo "lupine: installing$missing"
# shellcheck disable=SC2086
apt-cache show --no-all-versions $missing >/dev/null 2>&1 || update
# Lists may be older than the archive: one more try with new ones.
install || { update && install; }
