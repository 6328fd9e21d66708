#!/usr/bin/env bash
# find-python.sh PYTHON VENV: make the virtual environment VENV with PYTHON, or with the first Python >= 3.11 found.
set -euo pipefail

candidates=(python3 python3.14 python3.13 python3.12 python3.11 python)
if [ -n "$1" ]; then candidates=("$1"); fi

tried=()
for python in "${candidates[@]}"; do
  if ! version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then continue; fi
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    tried+=("$python is $version")
  elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    tried+=("$python ($version) cannot make environments: install python$version-venv")
  else
    "$python" -m venv --clear "$2"
    exit 0
  fi
done

{
  echo "tailgate needs Python >= 3.11, and none was found."
  for line in ${tried[@]+"${tried[@]}"}; do echo "  $line"; done
  echo "  mend: install one, or name it: make PYTHON=/path/to/python ..."
} >&2
exit 2
