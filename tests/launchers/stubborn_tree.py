"""A program like an engine with workers: threads, much memory, children that ignore SIGTERM or leave the session."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

SCRIPTS = (
    "exec sleep 600",
    'trap "" TERM; while :; do sleep 600; done',
    "exec setsid sleep 600",
    'trap "" TERM; setsid sh -c \'trap "" TERM; sleep 600 & sleep 600\' & exit 0',
)


def main() -> None:
    for script in SCRIPTS:
        subprocess.Popen(["sh", "-c", script])
    for _ in range(16):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    memory = [bytearray(1 << 20) for _ in range(32)]
    print("up", len(memory), flush=True)
    if len(sys.argv) > 1:
        sys.exit(int(sys.argv[1]))
    time.sleep(600)


if __name__ == "__main__":
    main()
