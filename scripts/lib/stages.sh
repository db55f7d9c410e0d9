# stages.sh - runs the stages of a check, one after the other. Sourced after say.sh.
#
# A stage's output goes to build/check/<stage>.log and is shown when it fails. A stage that fails does not stop the others:
# one run shows everything that is wrong. Passed and failed are counted in tests: what ctest and pytest report, and one for a
# stage that runs no tests.

STAGES_FOLDER=build/check
STAGES_PASSED=0
STAGES_FAILED=0
STAGES_BROKEN=()

# stage_count LOG: prints "passed failed" of ctest's and pytest's summaries in the log
stage_count() {
    awk '
        /% tests passed, [0-9]+ tests? failed out of [0-9]+$/ { failed += $4; passed += $NF - $4 }
        /^=+ .*(passed|failed|error).* in [0-9.]+s/ || /^[0-9]+ (passed|failed|error).* in [0-9.]+s/ {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^(failed|error)/) failed += $(i - 1)
            }
        }
        END { print passed + 0, failed + 0 }' "$1"
}

# stage NAME COMMAND...
stage() {
    local name=$1 log=$STAGES_FOLDER/$1.log begin=$SECONDS result=ok passed failed
    shift
    mkdir -p "$STAGES_FOLDER"
    # Not as a condition: bash ignores set -e there.
    (
        set -e
        "$@"
    ) >"$log" 2>&1 </dev/null
    [ $? -eq 0 ] || result=FAILED
    read -r passed failed < <(stage_count "$log")
    if [ $((passed + failed)) -eq 0 ]; then [ $result = ok ] && passed=1 || failed=1; fi
    if [ $result = FAILED ] && [ "$failed" -eq 0 ]; then failed=1; fi
    STAGES_PASSED=$((STAGES_PASSED + passed))
    STAGES_FAILED=$((STAGES_FAILED + failed))
    printf '%-16s %-6s %5d s   %d passed, %d failed\n' "$name" $result $((SECONDS - begin)) "$passed" "$failed"
    [ $result = ok ] && return 0
    STAGES_BROKEN+=("$name")
    say "---- end of $log"
    tail -n 60 "$log"
    say "----"
}

# The last line, and the exit status of the whole.
stages_finish() {
    [ ${#STAGES_BROKEN[@]} -eq 0 ] || say "failed stages: ${STAGES_BROKEN[*]}"
    say "$STAGES_PASSED passed, $STAGES_FAILED failed in $SECONDS s"
    [ "$STAGES_FAILED" -eq 0 ] && [ ${#STAGES_BROKEN[@]} -eq 0 ]
}
