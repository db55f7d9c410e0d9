#!/usr/bin/env bash
# check_test.sh - scripts/gpu-check itself, on the emulated device: that it runs its steps, writes what it promises, notices a
# failure and a missing GPU. A rehearsal of the script, no evidence about a GPU.
#
#   check_test.sh ROOT BIN      BIN holds the emulated programs test_cuda_<name>_plain
set -u
ROOT=$1 BIN=$2
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT
FAILED=0

expect() {
    "${@:2}" && return
    printf 'not so: %s\n' "$1"
    FAILED=1
}

mkdir "$FOLDER/programs"
for name in device kv_store attention attention_law copy_rates attention_rates; do ln -s "$BIN/test_cuda_${name}_plain" "$FOLDER/programs/$name"; done
ln -s "$BIN/test_cuda_prims_plain" "$FOLDER/programs/primitives"
printf '#!/bin/sh\necho "emulator, 0.0, 1, 1, 1, 1"\n' >"$FOLDER/smi"
printf '#!/bin/sh\nexit 9\n' >"$FOLDER/no-smi"
cat >"$FOLDER/broken" <<'END'
#!/bin/sh
printf 'broken "here"\\there\ttab \033[31m \303\244 \377\n'
exit 1
END
chmod +x "$FOLDER"/smi "$FOLDER"/no-smi "$FOLDER"/broken
export QUIRE_GPU_SMOKE=1 QUIRE_GPU_PROGRAMS=$FOLDER/programs

run() { QUIRE_NVIDIA_SMI=$FOLDER/$1 "$ROOT/scripts/gpu-check" "$FOLDER/out" >"$FOLDER/printed" 2>&1; }
valid() { python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$1"; }
passes() { run smi && [ "$(tail -n 1 "$FOLDER/printed")" = PASSED ]; }
fails() { ! run smi && [ "$(tail -n 1 "$FOLDER/printed")" = FAILED ]; }
skips() {
    run no-smi
    [ $? -eq 77 ] && [ "$(tail -n 1 "$FOLDER/printed")" = SKIPPED ] && [ "$(grep -c . "$FOLDER/out/result.json")" -eq 2 ]
}
has() { grep -c "\"status\":\"$1\"" "$FOLDER/out/result.json"; }
hurries() { ! QUIRE_GPU_BUDGET=0 run smi && [ "$(has timeout)" -eq 8 ] && [ "$(tail -n 1 "$FOLDER/printed")" = FAILED ]; }
# Without programs they are built; here that fails at once.
builds() {
    ! CUDACXX=$FOLDER/none QUIRE_GPU_PROGRAMS=$FOLDER/none run smi && [ "$(has failed)" -eq 1 ] &&
        grep -q '"step":"build-here","status":"failed".*no nvcc' "$FOLDER/out/result.json"
}
# A folder with somebody's files is not for results: nothing in it may be lost.
leaves_alone() {
    mkdir "$FOLDER/other" && echo mine >"$FOLDER/other/notes.txt"
    ! "$ROOT/scripts/gpu-check" "$FOLDER/other" >/dev/null 2>&1 && [ "$(ls "$FOLDER/other")" = notes.txt ]
}

expect "passes on the emulated device" passes
cat "$FOLDER/printed"
for file in result.json attention.jsonl copies.jsonl; do expect "$file is JSON lines" valid "$FOLDER/out/$file"; done
expect "the GPU and eight steps" [ "$(grep -c '"status":"ok"' "$FOLDER/out/result.json")" -eq 9 ]
expect "no GPU is 77, and says so last" skips
expect "no step begins when the time is over" hurries
expect "programs that are not there are built" builds
expect "result.json is JSON lines" valid "$FOLDER/out/result.json"
ln -sf "$FOLDER/broken" "$FOLDER/programs/device"
expect "a failing step fails the check" fails
expect "what it printed is in the JSON" valid "$FOLDER/out/result.json"
expect "a folder of other things is left alone" leaves_alone
exit $FAILED
