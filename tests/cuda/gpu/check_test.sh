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
# What the rates program may print of steps held to a target, and how the check takes it.
rates() { printf '#!/bin/sh\ncat <<END\n{"name":"stream_read","bytes":1,"us":1.0,"tb_per_s":4.000}\n%s\nEND\n' "$1" >"$FOLDER/rates"; }
rate() { printf '{"name":"decode","kv":"f16","batch":%s,"context":4096,"of_stream":%s,"tflops":1.0,"target":"%s"}\n' "$@"; }
target() { grep -q "\"step\":\"target-$1\",\"status\":\"$2\".*${3-}" "$FOLDER/out/result.json" && grep -q "^target-$1 *$2 .*${3-}" "$FOLDER/printed"; }
all_measured() {
    rates "$(rate 64 0.9100 16-bit; rate 4 0.8500 16-bit; rate 64 0.7499 8-bit; rate 16 0.9000 8-bit; rate 64 0.8000 skewed
        rate 1 0.6000 one-128k; rate 1 0.1000 '')"
    run smi && [ "$(tail -n 1 "$FOLDER/printed")" = PASSED ] && target 16-bit met 'worst of 2: 85.00 %, 85 % wanted (decode f16, 4 x 4096)' &&
        target 8-bit not-met 'worst of 2: 74.99 %, 75 % wanted (decode f16, 64 x 4096)' && target skewed met && target one-128k met
}
some_measured() {
    rates "$(rate 64 0.5000 skewed; rate 64 0.9100 16-bit)"
    run smi && target skewed not-met && target 16-bit met && target 8-bit not-measured && target one-128k not-measured
}
rates_fail() {
    rates "$(rate 64 0.9100 16-bit)" && echo 'exit 3' >>"$FOLDER/rates"
    ! run smi && for name in 16-bit 8-bit skewed one-128k; do target $name not-measured 'did not come' || return; done
}
has() { grep -c "\"status\":\"$1\"" "$FOLDER/out/result.json"; }
hurries() { ! QUIRE_GPU_BUDGET=0 run smi && [ "$(has timeout)" -eq 11 ] && [ "$(tail -n 1 "$FOLDER/printed")" = FAILED ]; }
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
expect "the GPU and eleven steps" [ "$(grep -c '"status":"ok"' "$FOLDER/out/result.json")" -eq 12 ]
for name in kv-store attention attention-law; do expect "a digest of $name" grep -qE "^digest [0-9a-f]{16}$" "$FOLDER/out/$name-again.txt"; done
for name in 16-bit 8-bit skewed one-128k; do expect "tiny shapes are held to no target: $name" target $name not-measured; done
expect "as many steps are held to targets as tiny shapes allow: none" [ "$(grep -c '"target":""' "$FOLDER/out/attention.jsonl")" -eq 16 ]
expect "no GPU is 77, and says so last" skips
expect "no step begins when the time is over" hurries
expect "programs that are not there are built" builds
expect "result.json is JSON lines" valid "$FOLDER/out/result.json"
for name in device kv_store attention attention_law copy_rates primitives; do ln -sf "$(type -P true)" "$FOLDER/programs/$name"; done
ln -sf "$FOLDER/rates" "$FOLDER/programs/attention_rates"
: >"$FOLDER/rates" && chmod +x "$FOLDER/rates"
expect "targets: met, just met, just missed" all_measured
expect "targets: not measured beside measured ones" some_measured
expect "targets: rates that fail measure nothing" rates_fail
expect "result.json is JSON lines" valid "$FOLDER/out/result.json"
rates ''
printf '#!/bin/sh\necho $$\n' >"$FOLDER/moving" && chmod +x "$FOLDER/moving"
for name in kv_store attention attention_law primitives; do
    ln -sf "$FOLDER/moving" "$FOLDER/programs/$name"
    expect "a second run of $name with other results fails the check" fails
    expect "of $name the second run alone" [ "$(grep '"status":"failed"' "$FOLDER/out/result.json" | grep -c "\"${name//_/-}-again\"")" = "$(has failed)" ]
    ln -sf "$(type -P true)" "$FOLDER/programs/$name"
done
ln -sf "$FOLDER/broken" "$FOLDER/programs/device"
expect "a failing step fails the check" fails
expect "what it printed is in the JSON" valid "$FOLDER/out/result.json"
expect "a folder of other things is left alone" leaves_alone
exit $FAILED
