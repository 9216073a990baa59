# SPDX-License-Identifier: Apache-2.0
# Finds or fetches a Go toolchain that can build Kubernetes; source it after
# common.sh. Debian 12 has Go 1.19, which is too old to build it but able to
# fetch a newer toolchain: those are Go modules like any other.
# shellcheck shell=bash
GO_PINNED=1.26.8
GO_CACHE=$COMMUTATOR_CACHE/go/$GO_PINNED

# Prints the version of the go command on PATH if it is 1.24 or newer.
go_usable_version() {
  local version
  command -v go >/dev/null || return 1
  version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || return 1
  [[ $version =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 24 ] && echo "$version"
}

# The version that a build uses, whether or not it has been fetched yet.
go_build_version() { go_usable_version || echo "go$GO_PINNED"; }

# Prints the path of a usable go command; fetches one if need be.
go_command() {
  if go_usable_version >/dev/null; then
    command -v go
  else
    [ -x "$GO_CACHE/bin/go" ] || go_fetch >&2
    echo "$GO_CACHE/bin/go"
  fi
}

# Fetches the pinned toolchain with whatever go there is. A module's files are
# neither executable nor writable, and its own go.mod travels as _go.mod.
go_fetch() {
  local arch dir part
  command -v go >/dev/null || die "no go command; run: $HERE/cluster deps"
  arch=$(GOTOOLCHAIN=local go env GOARCH)
  log "fetching Go $GO_PINNED (this machine has $(GOTOOLCHAIN=local go env GOVERSION))"
  dir=$(cd / && GOTOOLCHAIN=local GOFLAGS='' go mod download -json \
    "golang.org/toolchain@v0.0.1-go$GO_PINNED.linux-$arch" | jq -er .Dir) ||
    die "cannot fetch the Go toolchain through the module proxy"
  mkdir -p "$(dirname "$GO_CACHE")"
  part=$(mktemp -d "$GO_CACHE.XXXXXX")
  cp -r "$dir/." "$part"
  chmod -R u+w "$part"
  chmod +x "$part"/bin/* "$part"/pkg/tool/*/*
  mv "$part/src/_go.mod" "$part/src/go.mod"
  mv -T "$part" "$GO_CACHE" 2>/dev/null || rm -rf "$part"   # another run was faster
}
