#!/bin/sh
# Makes a package of Debian out of what `make install` puts below /usr, the manual and
# the examples: BUILD/lupine_VERSION-1_ARCH.deb. Usage: deb.sh BUILD VERSION
set -eu
build=$1 version=$2-1
# Lua's binding to libyaml reads run files; the rest is what the binaries are linked to.
lua_packages='lua-yaml, libjs-dygraphs'
data_packages='dataset-fashion-mnist, bible-kjv-text, lua5.4'

arch=$(dpkg --print-architecture)
top=$PWD/$build/deb
root=$top/debian/lupine
doc=$root/usr/share/doc/lupine
rm -rf "$top"
mkdir -p "$root/DEBIAN" "$doc"

make -s -o all -o meta -o man install BUILD="$build" DESTDIR="$root" PREFIX=/usr >/dev/null
strip --strip-unneeded "$root/usr/bin/lupine" "$root/usr/lib/lua/5.4/lupine.so"
# Packages are removed by dpkg, and pages of manuals are compressed.
rm "$root/usr/share/lupine/files"
gzip -9n "$root/usr/share/man/man1/lupine.1"
cp -R "$build/docs" "$doc/html"
cp -R examples "$doc/examples"

cat >"$doc/copyright" <<EOF
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: lupine

Files: *
Copyright: $(sed -n 's/^Copyright (c) //p' LICENSE)
License: Expat
$(sed '1,/^Copyright/d; s/^$/./; s/^/ /' LICENSE | sed '1d')
EOF
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
date=$(sed -n 's/^## .*\([0-9]\{4\}-[0-9]\{2\}-[0-9]\{2\}\).*/\1/p' CHANGELOG.md | head -1)
gzip -9nc >"$doc/changelog.Debian.gz" <<EOF
lupine ($version) unstable; urgency=medium

  * What is new: changelog.gz.

 -- lupine <lupine@localhost>  $(date -R -u -d "$date")
EOF

printf 'Source: lupine\n\nPackage: lupine\nArchitecture: any\n' >"$top/debian/control"
libraries=$(cd "$top" && dpkg-shlibdeps -O -e debian/lupine/usr/bin/lupine \
    -e debian/lupine/usr/lib/lua/5.4/lupine.so |
    sed -n 's/^shlibs:Depends=//p')
cat >"$root/DEBIAN/control" <<EOF
Package: lupine
Version: $version
Architecture: $arch
Maintainer: lupine <lupine@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: $libraries, $lua_packages
Suggests: $data_packages
Section: science
Priority: optional
Description: training environment scripted in Lua over a C core
 Tensors and autograd with PyTorch's names, a graph compiler, and a simulated
 system of IPUs with PopTorch's and PopART's interfaces, that tells what the
 same program would cost there.
EOF
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod -R u=rwX,go=rX "$root"
package=$build/lupine_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$package" >/dev/null
echo "deb: $package"
