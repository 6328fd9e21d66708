"""A server for tests: the OpenAI routes with one-token replies, and whatever misbehaviour the flags ask for."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FLAGS = argparse.ArgumentParser()
FLAGS.add_argument("--port", type=int, required=True)
FLAGS.add_argument("--model", default="tiny")
FLAGS.add_argument("--load-s", type=float, default=0.0, help="answer /health with 503 that long")
FLAGS.add_argument("--health", type=int, default=200)
FLAGS.add_argument("--models", type=int, default=200)
FLAGS.add_argument("--completion", type=int, default=200)
FLAGS.add_argument("--chat", type=int, default=None)
FLAGS.add_argument("--key", default=None)
FLAGS.add_argument("--deaf", action="store_true", help="never listen")
FLAGS.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
FLAGS.add_argument("--children", type=int, default=0, help="children in sessions of their own")
FLAGS.add_argument("--running", type=float, default=0.0)
FLAGS.add_argument("--gpus", type=int, default=1, help="GPUs of its DCGM page")
FLAGS.add_argument("--mute", action="store_true", help="have no /metrics")
FLAGS.add_argument("--say", default="")
FLAGS.add_argument("--exit", type=int, default=None, help="exit with this status at once")
FLAGS.add_argument("--exit-after", type=float, default=None, help="exit 0 after so many seconds")
CHILD = "import os,signal,time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Handler(BaseHTTPRequestHandler):
    asked: argparse.Namespace
    began_s: float
    protocol_version = "HTTP/1.1"

    def log_message(self, *words: Any) -> None:
        pass

    def reply(self, status: int, body: object) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refused(self) -> bool:
        if self.asked.key is None:
            return False
        if self.headers.get("Authorization") == f"Bearer {self.asked.key}":
            return False
        self.reply(401, {"error": "Unauthorized"})
        return True

    def do_GET(self) -> None:
        asked = self.asked
        match self.path:
            case "/health":
                loading = time.monotonic() - self.began_s < asked.load_s
                self.reply(503 if loading else asked.health, "")
            case "/version":
                self.reply(200, {"version": "0.33.0"})
            case "/metrics" if not asked.mute:
                self.reply(
                    200,
                    f'vllm:num_requests_running{{engine="0"}} {asked.running}\n'
                    'vllm:num_requests_waiting{engine="0"} 0.0\n'
                    'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
                    'vllm:num_preemptions_total{engine="0"} 3.0\n',
                )
            case "/dcgm/metrics":
                self.reply(
                    200,
                    "".join(
                        f'DCGM_FI_DEV_FB_{field}{{gpu="{gpu}",UUID="GPU-{gpu}",modelName="toy"}} {mib}\n'
                        for gpu in range(asked.gpus)
                        for field, mib in (("USED", 1000), ("FREE", 3000), ("RESERVED", 96))
                    ),
                )
            case "/v1/models" if not self.refused():
                self.reply(asked.models, {"data": [{"id": asked.model}]})
            case "/v1/models":
                pass
            case _:
                self.reply(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        status = self.asked.completion
        if self.path == "/v1/chat/completions" and self.asked.chat is not None:
            status = self.asked.chat
        if body["model"] != self.asked.model:
            status = 404
        if status == 200:
            self.reply(200, {"choices": [{"message": {"content": "x"}, "text": "x"}]})
        else:
            self.reply(status, {"error": {"message": f"refused with {status}", "code": status}})


def main() -> None:
    asked = FLAGS.parse_args()
    if asked.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(asked.children):
        subprocess.Popen([sys.executable, "-S", "-c", CHILD])
    if asked.say:
        print(asked.say, flush=True)
    if asked.exit is not None:
        sys.exit(asked.exit)
    if asked.deaf:
        time.sleep(600)
    Handler.asked = asked
    Handler.began_s = time.monotonic()
    server = ThreadingHTTPServer(("127.0.0.1", asked.port), Handler)
    if asked.exit_after is None:
        server.serve_forever()
    else:
        import threading

        threading.Thread(target=server.serve_forever, daemon=True).start()
        time.sleep(asked.exit_after)


if __name__ == "__main__":
    main()
