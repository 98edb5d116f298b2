#!/bin/sh
# Fails where clang-format would change a file; skipped without version 19.
command -v clang-format-19 >/dev/null || { echo "clang-format-19 is missing"; exit 77; }
cd "$1" || exit 1
find include test bench examples -name '*.hpp' -o -name '*.cpp' -o -name '*.h' -o -name '*.c' |
  xargs clang-format-19 --dry-run --Werror
