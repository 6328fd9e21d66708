from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.fetch import UnreachableError
from launchers.memory import MIB, Dcgm, Order, dcgm_gpus, visible_gpus

H100 = (
    'gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",DCGM_FI_DRIVER_VERSION="575.1"'
)


def line(field: str, value: float, labels: str = H100) -> str:
    return f"DCGM_FI_DEV_FB_{field}{{{labels}}} {value}\n"


def test_used_holds_what_is_reserved() -> None:
    page = line("USED", 1000) + line("FREE", 3000) + line("RESERVED", 96)
    (gpu,) = dcgm_gpus("# TYPE DCGM_FI_DEV_FB_USED gauge\n" + page)
    assert (gpu.used_bytes, gpu.total_bytes) == (1096 * MIB, 4096 * MIB)
    assert (gpu.name, gpu.uuid, gpu.driver) == ("NVIDIA H100", "GPU-a", "575.1")


def test_a_total_that_is_given_is_taken() -> None:
    (gpu,) = dcgm_gpus(line("USED", 1000) + line("TOTAL", 5000) + line("RESERVED", 96))
    assert (gpu.used_bytes, gpu.total_bytes) == (1096 * MIB, 5000 * MIB)


def test_what_a_page_leaves_out_is_none() -> None:
    (gpu,) = dcgm_gpus(line("FREE", 3000))
    assert (gpu.used_bytes, gpu.total_bytes, gpu.reserved_known) == (None, None, False)
    (gpu,) = dcgm_gpus(line("USED", 3000))
    assert (gpu.used_bytes, gpu.total_bytes) == (3000 * MIB, None)


def test_several_gpus_come_in_order_and_pods_do_not_double_them() -> None:
    page = "".join(
        line("USED", 100 * n, f'gpu="{n}",UUID="GPU-{n}",pod="{pod}"')
        for n in (10, 2, 0)
        for pod in ("a", "b")
    )
    assert [(g.gpu, g.used_bytes) for g in dcgm_gpus(page)] == [
        (0, 0),
        (2, 200 * MIB),
        (10, 1000 * MIB),
    ]


def test_instances_of_one_gpu_add_up() -> None:
    page = "".join(line("USED", 100, f'{H100},GPU_I_ID="{n}"') for n in (1, 2, 5))
    assert [g.used_bytes for g in dcgm_gpus(page)] == [300 * MIB]


@given(st.text())
def test_no_page_breaks_the_reader(page: str) -> None:
    dcgm_gpus(page)


UUIDS = {0: "GPU-aa11", 1: "GPU-aa22", 2: "GPU-bb33", 3: None}


@pytest.mark.parametrize(
    ("setting", "gpus"),
    [
        (None, (0, 1, 2, 3)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("0,9,1", (0,)),
        ("0,0,1", (0,)),
        ("GPU-bb,GPU-aa1", (2, 0)),
        ("GPU-aa", ()),
    ],
)
def test_what_cuda_would_see(setting: str | None, gpus: tuple[int, ...]) -> None:
    assert visible_gpus(setting, UUIDS) == gpus


class Page(BaseHTTPRequestHandler):
    status = 200
    text = ""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def exporter() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()
        thread.join()


def test_a_gpu_once_seen_is_never_lost_without_a_word(
    exporter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Dcgm(Order(node="n1", url=exporter))
    assert source.gpus() == ()
    with pytest.raises(UnreachableError, match="no DCGM_FI_DEV_FB_USED"):
        source.sweep()

    both = (
        line("USED", 5) + line("FREE", 3) + line("USED", 7, 'gpu="1"') + line("FREE", 1, 'gpu="1"')
    )
    monkeypatch.setattr(Page, "text", both)
    assert [(r.gpu, r.used_bytes) for r in source.sweep()] == [(0, 5 * MIB), (1, 7 * MIB)]
    assert [(g.node, g.gpu, g.total_bytes) for g in source.gpus()] == [
        ("n1", 0, 8 * MIB),
        ("n1", 1, 8 * MIB),
    ]
    assert "RESERVED" in source.warnings[0]

    monkeypatch.setattr(Page, "text", line("USED", 6))
    first, second = source.sweep()
    assert (first.used_bytes, second.used_bytes) == (6 * MIB, None)
    assert second.why == "the page no longer has this GPU"

    monkeypatch.setattr(Page, "status", 503)
    assert [r.used_bytes for r in source.sweep()] == [None, None]
    assert all(r.why is not None and "answers 503" in r.why for r in source.sweep())
