#!/usr/bin/env bash
# build_test.sh - scripts/gpu-build with a compiler in nvcc's place that makes C for the emulated device and skips CUDA: that the
# sources it names suffice for the programs in plain C, and that a build that fails leaves no programs behind.
#
#   build_test.sh ROOT CC CXX EMULATOR-LIBRARY
set -u
ROOT=$1
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT
FAILED=0

expect() {
    "${@:2}" && return
    printf 'not so: %s\n' "$1"
    FAILED=1
}

cat >"$FOLDER/nvcc" <<END
#!/usr/bin/env bash
CC='$2' CXX='$3' EMULATOR='$4' INCLUDE='$ROOT/tests/cuda/emulator/include'
END
cat >>"$FOLDER/nvcc" <<'END'
options=() inputs=() output=
while [ $# -gt 0 ]; do
    case $1 in
    -o) output=$2 && shift ;;
    -cudart | -gencode) shift ;;
    -Xlinker) options+=("-Wl,$2") && shift ;;
    -Xcompiler=*) IFS=, read -ra some <<<"${1#*=}" && options+=("${some[@]}") ;;
    -O* | -I*) options+=("$1") ;;
    -*) ;;
    *) inputs+=("$1") ;;
    esac
    shift
done
case ${inputs[0]} in
*.c) exec "$CC" "${options[@]}" -O0 -w -I"$INCLUDE" -c "${inputs[0]}" -o "$output" ;;
*.cc | *.cu) exec touch "$output" ;;
esac
for object in "${inputs[@]}"; do
    [ -s "$object" ] || exec install -m 755 /dev/null "$output" # a program with CUDA in it
done
exec "$CXX" "${options[@]}" -rdynamic "${inputs[@]}" "$EMULATOR" -ldl -lpthread -lm -o "$output"
END
chmod +x "$FOLDER/nvcc"
printf '#!/bin/sh\nexit 1\n' >"$FOLDER/broken-nvcc" && chmod +x "$FOLDER/broken-nvcc"
export QUIRE_GPU_PROGRAMS=$FOLDER/programs

builds() { CUDACXX=$FOLDER/nvcc "$ROOT/scripts/gpu-build"; }
leaves_nothing() { ! CUDACXX=$FOLDER/broken-nvcc "$ROOT/scripts/gpu-build" >/dev/null 2>&1 && [ -z "$(ls "$QUIRE_GPU_PROGRAMS")" ]; }

expect "it builds" builds
expect "seven programs and nothing else" [ "$(find "$QUIRE_GPU_PROGRAMS" -type f -perm -100 | wc -l) $(ls "$QUIRE_GPU_PROGRAMS" | wc -l)" = "7 7" ]
expect "the device's test is whole" "$QUIRE_GPU_PROGRAMS/device"
expect "copy rates are whole" "$QUIRE_GPU_PROGRAMS/copy_rates" --smoke
expect "a failure leaves no programs" leaves_nothing
exit $FAILED
