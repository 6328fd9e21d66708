from __future__ import annotations

import pytest

from launchers.cause import CAUSES, recognise

SAID = {
    "ValueError: Free memory on device cuda:0 (3.1/79.1 GiB) on startup is less than desired GPU "
    "memory utilization (0.92, 72.8 GiB).": "other processes hold the GPU's memory",
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV "
    "cache is needed, which is larger than the available KV cache memory (9.2 GiB). Based on the "
    "available memory, the estimated maximum model length is 75360.": (
        "the KV cache is smaller than one request of full length"
    ),
    "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.": "no memory is left for the KV cache",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB.": (
        "the GPU is out of memory"
    ),
    "OSError: [Errno 98] Address already in use": "the port is in use",
    "RuntimeError: Failed to bind socket to 127.0.0.1:8000": "the port is in use",
    "huggingface_hub.errors.GatedRepoError: 401 Client Error.": (
        "the model is gated and the token does not open it"
    ),
    "OSError: nosuch/model is not a local folder and is not a valid model identifier listed on "
    "'https://huggingface.co/models'": "the model was not found",
    "vllm: error: unrecognized arguments: --swap-space 4": "a flag is not known to this version",
    "api_server.py: error: argument --dtype: invalid choice: 'float33'": (
        "a flag is not known to this version"
    ),
    "RuntimeError: Failed to infer device type": "there is no GPU that it can use",
    "ValueError: VLLM_PORT 'tcp://10.0.0.1:8000' appears to be a URI. This may be caused by a "
    "Kubernetes service discovery issue": (
        "VLLM_PORT holds an address, as Kubernetes writes it for a service called vllm"
    ),
    "ModuleNotFoundError: No module named 'vllm'": "a Python module is missing or does not fit",
    "/venv/bin/vllm: No such file or directory": "its program was not found or may not be run",
    "MemoryError": "the host is out of memory",
}


@pytest.mark.parametrize("line", SAID)
def test_what_engines_say_is_understood(line: str) -> None:
    cause = recognise(("INFO loading", line, "RuntimeError: Engine core initialization failed."))
    assert cause is not None
    assert cause.name == SAID[line]


def test_every_cause_is_tried() -> None:
    assert {cause.name for cause in CAUSES} == set(SAID.values())


def test_an_unknown_end_has_no_cause() -> None:
    assert recognise(("INFO all is well", "Segmentation fault")) is None
