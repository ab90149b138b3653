#!/usr/bin/env bash
# Everything that needs a GPU, in one command:  scripts/gpu.sh [build] [test] [sanitize] [bench] [certify] [models] [sweep]
# (no argument: the first five)
#
# Needs nvcc, cmake, and a python3 with torch (CUDA), pybind11, scikit-build-core and pytest; no network. Wheels of other packages
# that it lacks come from the folder .whl, and objects from .objects (scripts/objects.sh), if there are such. The build goes to
# AICF_GPU_SITE (default: a folder in the user's cache), never into the repository's Python package. Of several GPUs those in
# CUDA_VISIBLE_DEVICES are used, if it is set. The last lines are a table of the stages.
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
SITE=${AICF_GPU_SITE:-${XDG_CACHE_HOME:-$HOME/.cache}/aicf-gpu}
JOBS=$(nproc)
export PYTHONUNBUFFERED=1 CMAKE_BUILD_PARALLEL_LEVEL=$JOBS
export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}  # numbers are those of nvidia-smi

# The GPUs that CUDA sees, one a line: as it does, the entries of CUDA_VISIBLE_DEVICES up to the first that is none.
devices() {
  local entry count entries=()
  count=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU)
  [ -n "${CUDA_VISIBLE_DEVICES+set}" ] || CUDA_VISIBLE_DEVICES=$(seq -s , 0 $((count - 1)))
  IFS=, read -ra entries <<<"$CUDA_VISIBLE_DEVICES"
  for entry in "${entries[@]}"; do
    [[ $entry =~ ^(GPU|MIG)- ]] || { [[ $entry =~ ^[0-9]+$ ]] && ((10#$entry < count)); } || break
    echo "$entry"
  done
}
mapfile -t DEVICES < <(devices)
GPUS=${#DEVICES[@]}  # tests and sanitizers use all of them, a measurement the first

usage() {
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 2
}

build() {
  local architecture
  architecture=$(python3 -c 'import torch; print("%d%d" % torch.cuda.get_device_capability())') || return
  [ "$architecture" = 90 ] && architecture=90a  # with Hopper's own instructions
  mkdir -p "$SITE"
  if compgen -G "$ROOT/.whl/*.whl" >/dev/null; then
    python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$SITE" "$ROOT"/.whl/*.whl || return
  fi
  if [ -d "$ROOT/.objects" ] && link_objects; then return; fi
  AICF_CUDA=ON python3 -m pip install -q --no-index --no-deps --no-build-isolation --upgrade --target "$SITE" \
    --config-settings "cmake.define.CMAKE_CUDA_ARCHITECTURES=${architecture}-real" "$ROOT" || return
  import_module
}
import_module() {
  at_site python3 -c 'from aicf_mlir import _C; assert _C.with_cuda and _C.device_count("cuda"), "no CUDA device"'
}

# With the objects that scripts/objects.sh has packed on another machine: seconds instead of minutes.
link_objects() {
  rm -rf "$SITE/aicf_mlir"
  cp -r "$ROOT/aicf_mlir" "$SITE/" && rm -f "$SITE"/aicf_mlir/_C*.so || return
  "$ROOT/scripts/objects.sh" link python3 "$SITE/aicf_mlir" && import_module
}

# Runs a command where the repository's folder does not shadow the installed package.
at_site() { (cd "$SITE" && PYTHONPATH="$SITE" "$@"); }

run_tests() {
  local workers=$((JOBS < 15 * GPUS ? JOBS : 15 * GPUS))
  AICF_TEST_GPUS=$(IFS=,; echo "${DEVICES[*]}") at_site python3 -m pytest -q --campaign -m "gpu or nvrtc" -n "$workers" --tb=short --maxfail=40 -p no:cacheprovider \
    -W default::DeprecationWarning -W default::PendingDeprecationWarning \
    -c "$ROOT/pyproject.toml" --rootdir "$ROOT" "$ROOT/tests/py" || return
  at_site python3 "$ROOT/tests/gpu/generated_kernels.py" || return
  at_site python3 "$ROOT/tests/gpu/data_parallel.py" --width 256 2048 || return
  at_site python3 "$ROOT/examples/short_form.py" --device cuda
}

# compute-sanitizer over the kernels, in parts side by side. A canary first: a sanitizer that does not find it is no proof.
sanitize() {
  local canary="$SITE/canary" parts=$((3 * GPUS)) n  # the host's work is the most of it
  local kernels=(python3 "$ROOT/tests/gpu/sanitized_kernels.py") steps=(python3 "$ROOT/tests/gpu/sanitized_steps.py")
  local generated=(python3 "$ROOT/tests/gpu/generated_kernels.py")
  nvcc -arch=native -lineinfo -o "$canary" "$ROOT/tests/gpu/canary.cu" || return
  must_fire "Invalid __global__ write" memcheck "$canary" memory || return
  must_fire "hazard" racecheck "$canary" race || return
  BESIDE=() LOGS=()
  for ((n = 0; n < parts; ++n)); do
    beside memcheck "${kernels[@]}" --part "$n" "$parts" --each 3
    # What --races leaves out, and why, says tests/py/support/kernel_cases/races.py.
    beside racecheck "${kernels[@]}" --part "$n" "$parts" --each 8 --races
  done
  beside memcheck "${generated[@]}" --count 4 --products 3 --runs 2
  beside racecheck "${generated[@]}" --count 4 --products 5 --runs 2
  AICF_CUBLASLT=0 AICF_CUDNN=0 beside memcheck "${steps[@]}"
  AICF_CUBLASLT=0 AICF_CUDNN=0 beside racecheck "${steps[@]}"
  AICF_CUBLASLT=0 beside memcheck --target-processes all python3 "$ROOT/tests/gpu/data_parallel.py" --only steps
  all_clean
}

# beside TOOL COMMAND...: the same as `clean`, in the background, on the next GPU.
beside() {
  local n=${#BESIDE[@]}
  LOGS+=("$SITE/sanitize-$n.log")
  {
    local code=0 start=$SECONDS
    echo "== $*"
    CUDA_VISIBLE_DEVICES=${DEVICES[n % GPUS]} clean "$@" || code=$?
    echo "after $((SECONDS - start)) s"
    exit "$code"
  } >"${LOGS[n]}" 2>&1 &
  BESIDE+=($!)
}

# Waits for all that runs beside, and prints what it has said, whole where a fault was found.
all_clean() {
  local n failed=0
  for n in "${!BESIDE[@]}"; do
    if wait "${BESIDE[n]}"; then
      head -n 1 "${LOGS[n]}"
      tail -n 3 "${LOGS[n]}"
    else
      failed=1
      cat "${LOGS[n]}"
    fi
  done
  return "$failed"
}

clean() {
  local tool=$1
  shift
  at_site compute-sanitizer --tool "$tool" --error-exitcode 99 --print-limit 20 "$@"
}

# must_fire TEXT TOOL COMMAND...: the tool reports a fault, with this text.
must_fire() {
  local text=$1 log="$SITE/canary.log"
  shift
  if clean "$@" >"$log" 2>&1 || ! grep -q "$text" "$log"; then
    cat "$log"
    echo "compute-sanitizer --tool $1 did not find the fault in canary.cu ('$text')"
    return 1
  fi
  echo "$1 finds its canary"
}

bench() {
  at_site python3 "$ROOT/bench/kernels_gpu.py" || return
  at_site python3 "$ROOT/bench/generated_gpu.py" || return
  at_site python3 "$ROOT/bench/input_upload.py" || return
  at_site python3 "$ROOT/bench/updates.py" --device cuda || return
  at_site python3 "$ROOT/bench/rows_gpu.py" --budget 480 --json "$SITE/rows.json" --profiles "$SITE/profiles"
}

# Each row's captured step against its plan, its eager self and the model, which the host interprets.
certify() {
  at_site python3 "$ROOT/bench/rows_gpu.py" --contenders aicf --certify --seconds 0.02 --limit 500
}

# Whole train steps of real models, and each op in many sizes, beside torch.
models() { at_site python3 "$ROOT/bench/models_gpu.py" --json "$SITE/models.json" --profiles "$SITE/profiles" --budget 1700; }
sweep() { at_site python3 "$ROOT/bench/sweep_gpu.py" --json "$SITE/sweep.json"; }

[ $# -gt 0 ] || set -- all
STAGES=()
for stage in "$@"; do
  case $stage in
    all) STAGES+=(build test sanitize bench certify) ;;
    build | test | sanitize | bench | certify | models | sweep) STAGES+=("$stage") ;;
    *) usage ;;
  esac
done

if [ "$GPUS" = 0 ]; then
  echo "scripts/gpu.sh: no GPU to run on: nvidia-smi -L lists none, or CUDA_VISIBLE_DEVICES names none of them" >&2
  exit 1
fi

TABLE=""
FAILED=0
for stage in "${STAGES[@]}"; do
  echo "== $stage"
  start=$SECONDS
  action=$stage
  [ "$stage" = test ] && action=run_tests
  if "$action"; then result=passed; else result=FAILED FAILED=1; fi
  TABLE+=$(printf '%-9s %-7s %4d s' "$stage" "$result" "$((SECONDS - start))")$'\n'
  if [ "$stage" = build ] && [ "$result" = FAILED ]; then break; fi
done
echo "== $(nvidia-smi -i "${DEVICES[0]}" --query-gpu=name,driver_version --format=csv,noheader | head -n 1)"
printf '%s' "$TABLE"
exit "$FAILED"
