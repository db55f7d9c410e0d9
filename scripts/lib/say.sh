# say.sh - what the scripts tell the user. Sourced.

say() { printf '%s\n' "$*"; }
warn() { printf '%s\n' "$*" >&2; }
die() {
    warn "$(basename "$0"): $*"
    exit 1
}
# Whether a person can be asked.
has_terminal() { [ -t 0 ] && [ -t 1 ]; }
