# Fetches the packages user-mode-linux and libc6 of newer Debian suites into
# $1/SUITE, unpacked, and makes the kernel there use the libc beside it.
set -eu
mkdir -p "$1"
folder=$(realpath "$1")
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources | head -n 1)
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
for suite in trixie sid; do
	echo "deb [trusted=yes] $mirror $suite main"
done >"$state/sources"
apt() {
	apt-get -qq -o Dir::Etc::SourceList="$state/sources" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$state/lists" -o Dir::Cache="$state/cache" -o APT::Sandbox::User=root "$@"
}
command -v patchelf >/dev/null || apt-get -qq install -y --no-install-recommends patchelf >/dev/null
apt update
for suite in trixie sid; do
	rm -rf "${folder:?}/$suite"
	mkdir -p "$folder/$suite/root"
	(
		cd "$folder/$suite/root"
		apt download "user-mode-linux/$suite" "libc6/$suite"
		for package in *.deb; do dpkg -x "$package" .; done
		rm -f ./*.deb
	)
	cp "$folder/$suite/root/usr/bin/linux.uml" "$folder/$suite/linux"
	ln -s root/usr/lib/uml/modules "$folder/$suite/modules"
	libc=$(dirname "$(find "$folder/$suite/root/usr/lib" -name libc.so.6 | head -n 1)")
	patchelf --set-interpreter "$libc/ld-linux-x86-64.so.2" --set-rpath "$libc" "$folder/$suite/linux"
	echo "$suite: $("$folder/$suite/linux" --version)"
done
