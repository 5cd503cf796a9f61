#!/bin/sh
# Runs the kit: correctness of every entry against the reference, the bench, and load times.
#
#     run.sh [--small] RESULTS
#
# Writes logs and CSV files to the folder RESULTS, prints a short table last, and fails if anything
# differs. At most 8 minutes. --small is for the emulated driver. The folder must not be under
# benches/results when the driver is an emulated one: its times are not a GPU's.
set -u

here=$(cd "$(dirname "$0")" && pwd)
small=
if [ "${1:-}" = --small ]; then
    small=1
    shift
fi
if [ $# -ne 1 ]; then
    echo "usage: run.sh [--small] RESULTS" >&2
    exit 2
fi

device=$("$here/bin/load_times" "$here/ptx" 2>&1) || {
    echo "no CUDA device answers:" >&2
    echo "$device" >&2
    exit 2
}
case $device in
*emulated*)
    echo "The driver is the emulated one: results hold, times say nothing about a GPU."
    case $1/ in
    */benches/results/* | benches/results/*)
        echo "Its times do not belong under benches/results." >&2
        exit 2
        ;;
    esac
    ;;
esac

mkdir -p "$1" || exit 2
results=$(cd "$1" && pwd)
{
    cat "$here/about.txt"
    echo "date: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo "$device" | grep -E '^(device|compute capability|driver):'
    nvidia-smi 2>/dev/null
} >"$results/machine.txt"

table=
failed=0

# step NAME SECONDS LOG COMMAND...: runs a command within a time and notes how it went.
step() {
    name=$1
    limit=$2
    log=$results/$3
    shift 3
    echo "== $name"
    start=$(date +%s)
    timeout "$limit" "$@" >"$log" 2>&1
    code=$?
    took=$(($(date +%s) - start))
    case $code in
    0) verdict=ok ;;
    124) verdict="TIMED OUT after $limit s" ;;
    *) verdict="FAILED ($code)" ;;
    esac
    if [ $code -ne 0 ]; then
        failed=1
        tail -n 40 "$log"
    fi
    note=$(grep -E "^(test result:|summary:)|first load median" "$log" | tail -n 1)
    table="$table$(printf '%-22s %5s s  %s  %s' "$name" "$took" "$verdict" "$note")
"
}

if [ "$small" ]; then
    PROPTEST_CASES=${PROPTEST_CASES:-4}
    export PROPTEST_CASES
fi
# One test at a time: they share the device, and one that fails is then easy to place.
step "suite" 260 suite.log "$here/bin/suite" cuda:: --test-threads=1
step "recipe" 20 recipe.log "$here/bin/paged-attention-cudarc-example" "$here/ptx"
step "load times" 60 load_times.log "$here/bin/load_times" "$here/ptx" "$results/load_times.csv"
if [ -x "$here/bin/gpu" ]; then
    step "bench" 130 bench.log "$here/bin/gpu" ${small:+--small} --csv "$results/bench.csv"
else
    table="${table}bench                  not part of this kit
"
fi

# A suite in which nothing ran has shown nothing.
if ! grep -qE '^test result: ok\. [1-9][0-9]* passed' "$results/suite.log"; then
    failed=1
    table="${table}suite                  no test of the CUDA back end passed
"
fi

echo
grep -E '^(device|compute capability|driver):' "$results/machine.txt"
printf '%s' "$table"
echo "results: $results"
exit $failed
