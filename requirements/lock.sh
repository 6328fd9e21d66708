#!/usr/bin/env bash
# Resolve the dependencies again into the hashed requirements files. UPGRADE=1 also moves the pins that still fit.
# The files are good for every Python >= 3.11 and name no index host: pip asks whichever one the machine is set up for.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=.venv-lock
if [ ! -x $tools/bin/uv ]; then
  .venv/bin/python -m venv --clear $tools
  $tools/bin/python -m pip install -qq --disable-pip-version-check uv
fi

options=(--universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet)
if [ -n "${UPGRADE:-}" ]; then options+=(--upgrade); fi
lock() { $tools/bin/uv pip compile "${options[@]}" "$@" > /dev/null; }

lock pyproject.toml --output-file requirements/run.txt
lock pyproject.toml --group dev --constraints requirements/run.txt --output-file requirements/dev.txt
# What `pip install --no-build-isolation --editable .` builds with.
printf 'hatchling>=1.27\neditables\n' | lock - --constraints requirements/dev.txt --output-file requirements/build.txt
