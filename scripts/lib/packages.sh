# packages.sh - the Debian packages that a build and the tests need. Sourced after say.sh.

QUIRE_PACKAGES_BUILD=(
    build-essential cmake ninja-build pkg-config
    libuv1-dev libjansson-dev libhttp-parser-dev libcurl4-openssl-dev libedit-dev libutf8proc-dev libxxhash-dev
    python3 python3-pip ca-certificates
)
QUIRE_PACKAGES_TEST=(
    libcriterion-dev clang clang-format clang-tidy libclang-rt-14-dev valgrind python3-venv curl
)

package_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Prints those of its arguments that are not installed.
packages_missing() {
    local package
    for package in "$@"; do package_installed "$package" || printf '%s\n' "$package"; done
}

packages_install() {
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "installing packages needs root, and there is no sudo: apt-get install $*"
        root=(sudo)
    fi
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

# packages_ensure YES PACKAGE...: installs what is missing, after asking unless YES is 1. Without anyone to ask it lists
# what is missing and exits with 2.
packages_ensure() {
    local yes=$1 missing answer
    shift
    if ! command -v dpkg-query >/dev/null; then
        warn "this is not a Debian system; the build needs the equivalents of: $*"
        return 0
    fi
    mapfile -t missing < <(packages_missing "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    say "These Debian packages are missing: ${missing[*]}"
    if [ "$yes" != 1 ]; then
        if ! has_terminal; then
            warn "install them with: apt-get install ${missing[*]}   (or run this again with --yes)"
            exit 2
        fi
        read -r -p "Install them with apt now? [y/N] " answer
        case $answer in [yY] | [yY][eE][sS]) ;; *) die "not without those packages" ;; esac
    fi
    packages_install "${missing[@]}" || die "apt could not install: ${missing[*]}"
}
