#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the cluster needs from Debian, and a Go toolchain.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
# shellcheck source=go.sh
source "$HERE/lib/go.sh"

PACKAGES=(ca-certificates containerd runc containernetworking-plugins nftables
  busybox-static jq iproute2 util-linux openssl curl)

usage() {
  cat <<EOF
usage: cluster deps [--list]

Installs the Debian packages that are missing; Debian's Go too if there is no
other and the cluster's programs are not in the cache. (The build fetches Go
$GO_PINNED with it, as a module.)
  --list   only print the names of the packages
EOF
}

# Prints those of the given packages that are not installed.
not_installed() {
  local states
  states=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qx "$package installed" <<<"$states" || echo "$package"
  done
}

# Has nothing to say unless it fails.
apt_get() {
  local output
  output=$(apt-get -qq -o Dpkg::Use-Pty=0 "$@" 2>&1) || { echo "$output" >&2; return 1; }
}

# containerd must not start as a service of the machine: it is only used inside
# the cluster's namespaces. policy-rc.d is how Debian lets one say so.
install_packages() {
  local policy=/usr/sbin/policy-rc.d ours='' begin=$EPOCHREALTIME
  [ "$(id -u)" = 0 ] || die "missing packages: $* (to install them, run this as root)"
  log "installing: $*"
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    ours=1
    trap 'rm -f '"$policy" EXIT
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt_get update || log "apt-get update failed; trying with the package lists at hand"
  apt_get install --no-install-recommends "$@" || die "apt-get install failed"
  log "installed in $(seconds_since "$begin")s"
  [ -z "$ours" ] || { rm -f "$policy"; trap - EXIT; }
}

# Debian's Go can fetch a newer one; with the programs built, none is needed.
needs_go() {
  ! command -v go >/dev/null && [ ! -x "$GO_CACHE/bin/go" ] && [ ! -d "$("$HERE/lib/build.sh" --path)" ]
}

main() {
  local missing
  case ${1:-} in
    '') ;;
    --list) printf '%s\n' "${PACKAGES[@]}"; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  command -v dpkg-query >/dev/null || { log "no Debian here: install the likes of ${PACKAGES[*]}"; exit 0; }
  mapfile -t missing < <(not_installed "${PACKAGES[@]}")
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
  ! needs_go || install_packages golang-go
}

main "$@"
