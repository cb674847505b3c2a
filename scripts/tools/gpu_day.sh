#!/bin/bash
# What there is to know on a machine with a GPU, in under eight minutes: bash scripts/tools/gpu_day.sh OUT
#
# It takes the machine's own Python (PYTHON, or python3) and installs nothing but wheels in the folder `wheels`, if they were taken
# along: python3 -m pip wheel --no-deps --wheel-dir wheels pytorch-crf torch-struct. Each step has a limit of its own, and writes its
# output to OUT and a line to OUT/steps.txt once it ends. Without a GPU, all steps are rehearsed at small sizes.
set -u
out=$(mkdir -p "${1:?give a folder for the results}" && cd "$1" && pwd) || exit 2
python=$(command -v "${PYTHON:-python3}") && python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") || exit 2
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
failed=$work/failed
say() { echo "$*" | tee -a "$out/steps.txt"; }

# step NAME LIMIT COMMAND...: a line for what came of it.
step() {
    local name=$1 limit=$2 begin=$SECONDS code verdict=ok
    shift 2
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1
    code=$?
    [ $code = 0 ] || { verdict=FAILED; touch "$failed"; }
    [ $code = 124 ] && verdict="FAILED, beyond its limit of $limit s"
    say "$name ($((SECONDS - begin)) s): $verdict: $(grep -v '^ *$' "$out/$name.txt" | tail -n 1 | cut -c 1-160)"
    grep -h '^FAILED\|^ERROR' "$out/$name.txt" | cut -c 1-200 | head -n 20 | tee -a "$out/steps.txt"
}

# A tree with models/ and tasks/ where an installation has them.
mkdir "$work/tree" && tar --exclude=./.venv --exclude=./.git --exclude=./build --exclude=./runs -cf - . | tar -xf - -C "$work/tree"
cp -r models tasks "$work/tree/structsmooth/" && cd "$work/tree" || exit 2
export PYTHONPATH=$work/site PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 TRITON_CACHE_DIR=$work/triton
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$work/numba}
if ls wheels/*.whl >/dev/null 2>&1; then
    step wheels 60 "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$work/site" wheels/*.whl
fi
versions='import sys, torch, numpy, numba; print(sys.version.split()[0], torch.__version__, numpy.__version__, numba.__version__)'
step versions 60 "$python" -c "$versions"
device=$("$python" -c 'import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else "")')
say "${device:-no GPU: a rehearsal}"
if [ -n "$device" ]; then
    some=() table=(--seconds 0.15)
else
    export TRITON_INTERPRET=1
    some=(-k "constant_sum or adam or frank or Candidates") table=(--cpu --seconds 0 --chains 1 --size 4)
fi
"$python" -c "import xdist" 2>/dev/null && parallel=(-n "$(($(nproc) / 2))") || parallel=()
tests=("$python" -m pytest -q -p no:cacheprovider -o addopts= -o filterwarnings=default --maxfail=60 -rf "${parallel[@]}" "${some[@]}")
begin=$SECONDS
step contracts 200 "${tests[@]}" tests/structures/test_contract.py -k other_devices &
step kernels 240 "${tests[@]}" tests/interpreted/chains.py tests/interpreted/programs.py &
step solvers 240 env TRITON_INTERPRET=0 "${tests[@]}" tests/interpreted/solvers.py &
step doctor 200 "$python" -m structsmooth doctor &
step compiled 240 "$python" -m scripts gpu "${table[@]/0.15/0}" &
wait
step table 140 "$python" -m scripts gpu "${table[@]}" --out "$out/gpu.md"
say "in all $((SECONDS - begin)) s"
[ ! -e "$failed" ]
