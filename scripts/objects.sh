#!/usr/bin/env bash
# What a build on another machine need not compile again:  scripts/objects.sh pack   here, after `make build`
#                                                          scripts/objects.sh link PYTHON FOLDER   there
#
# All objects but those of csrc/bindings are the same for every Python. `pack` writes them to .objects, which git ignores, with a
# digest of the sources; `link` compiles the bindings for PYTHON and links the module into FOLDER. It fails where the sources differ.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
PACKED=$ROOT/.objects/objects.tar.gz
digest() { (cd "$ROOT" && find csrc CMakeLists.txt -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64); }

pack() {
  local built=("$ROOT"/build/*/CMakeFiles/_C.dir)
  [ -d "${built[0]}" ] || { echo "scripts/objects.sh: no build here: make build first" >&2; return 1; }
  mkdir -p "$ROOT/.objects"
  digest >"$ROOT/.objects/sources"
  (cd "${built[0]}" && find . -name '*.o' -not -path '*/bindings/*' | tar czf "$PACKED" -T -)
  du -h "$PACKED"
}

link() {
  local python=$1 folder=$2 objects suffix
  [ "$(cat "$ROOT/.objects/sources")" = "$(digest)" ] || { echo "scripts/objects.sh: other sources than those packed" >&2; return 1; }
  objects=$(mktemp -d)
  tar xzf "$PACKED" -C "$objects"
  suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  mkdir -p "$objects/bindings"
  # shellcheck disable=SC2046  # several options
  printf '%s\0' "$ROOT"/csrc/bindings/*.cpp | xargs -0 -P "$(nproc)" -I{} sh -c 'g++ "$@" -c {} -o "$0/$(basename {}).o"' \
    "$objects/bindings" -std=c++17 -O2 -DNDEBUG -fPIC -fvisibility=hidden -ffp-contract=off -DAICF_NATIVE=1 -DAICF_WITH_CUDA=1 \
    $("$python" -m pybind11 --includes) "-I$ROOT/csrc"
  find "$objects" -name '*.o' -print0 | xargs -0 nvcc -shared -Xlinker --exclude-libs,ALL -o "$folder/_C$suffix" -ldl
  rm -r "$objects"
}

case ${1:-} in
  pack) pack ;;
  link) link "$2" "$3" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
