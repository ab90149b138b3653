#!/usr/bin/env bash
# Builds the portable wheel into dist/, installs it into an environment of its own, and compares the bits of
# every CPU kernel at each level of x86-64 that this processor has. Needs `make build` before it (make wheel).
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=$PWD/.venv/bin/python
SITE=$(mktemp -d)
trap 'rm -rf "$SITE"' EXIT

# The same commit gives the same bytes: times in the archive are that of the commit, and CMake maps the paths of the build away.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -f dist/*.whl
PATH="$PWD/.venv/bin:$PATH" "$PYTHON" -m pip wheel . --disable-pip-version-check --no-deps --no-build-isolation -w dist
"$PYTHON" -m venv "$SITE"
"$SITE/bin/python" -m pip install --disable-pip-version-check --quiet --no-deps dist/*.whl
# What AICF depends on comes from .venv; as a plain path, so that the editable installation there is not seen.
"$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$SITE/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
"$SITE/bin/aicf" info
if grep -lF "$PWD" "$SITE"/lib/python*/site-packages/aicf_mlir/*.so; then
  echo "these name the folder in which they were built"
  exit 1
fi

levels=$("$SITE/bin/python" -P -c 'from aicf_mlir.machine import cpu_kernels as c, processor; print(*(n for n in c.built() if n in processor.levels()))')
before=""
for level in $levels; do
  AICF_CPU_LEVEL=$level "$SITE/bin/python" tests/py/support/kernel_bits.py >"$SITE/$level"
  if [ -n "$before" ]; then
    differ='^$'
    if [ "$before" = x86-64 ]; then differ='^gemm\|^convolution'; fi  # no fused multiply-adds there
    diff <(grep -v "$differ" "$SITE/$before") <(grep -v "$differ" "$SITE/$level") || { echo "$level differs from $before"; exit 1; }
  fi
  before=$level
done
echo "the same bits at: $levels"
