from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.choice import Order, choose, visible_gpus
from launchers.dcgm import MIB, dcgm_gpus
from launchers.fetch import UnreachableError
from launchers.memory import Dcgm

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


NO_SIZES = [
    (float("nan"), "is nan, which is no size"),
    (-1, "is -1, which is no size"),
    (float("inf"), "is blank (inf)"),
    (float("-inf"), "is -inf, which is no size"),
    # DCGM_INT32_BLANK, DCGM_FP64_BLANK and DCGM_INT64_BLANK with the reasons that may be added to them
    (0x7FFFFFF0, "is blank"),
    (140737488355328.0, "is blank"),
    (140737488355330.0, "is blank"),
    (0x7FFFFFFFFFFFFFF0, "is blank"),
    (9223372036854775794, "is blank"),
]


@pytest.mark.parametrize(("value", "why"), NO_SIZES)
def test_what_is_no_size_is_none_with_its_reason(value: float, why: str) -> None:
    (gpu,) = dcgm_gpus(line("USED", value) + line("FREE", 3000) + line("RESERVED", 96))
    assert (gpu.used_bytes, gpu.total_bytes) == (None, None)
    assert gpu.why is not None
    assert gpu.why.startswith(f"DCGM_FI_DEV_FB_USED {why}")

    (gpu,) = dcgm_gpus(line("USED", 1000) + line("FREE", value))
    assert (gpu.used_bytes, gpu.total_bytes) == (1000 * MIB, None)
    assert gpu.why is not None
    assert gpu.why.startswith(f"DCGM_FI_DEV_FB_FREE {why}")

    (gpu,) = dcgm_gpus(line("USED", 1000) + line("FREE", 3000) + line("TOTAL", value))
    assert (gpu.used_bytes, gpu.total_bytes) == (1000 * MIB, 4000 * MIB)

    (gpu,) = dcgm_gpus(line("USED", 1000) + line("FREE", 3000) + line("RESERVED", value))
    assert (gpu.used_bytes, gpu.reserved_known) == (1000 * MIB, False)


def test_one_instance_without_a_size_leaves_its_gpu_without_one() -> None:
    page = line("USED", 100, f'{H100},GPU_I_ID="1"')
    page += line("USED", float("nan"), f'{H100},GPU_I_ID="2"')
    assert [g.used_bytes for g in dcgm_gpus(page)] == [None]


def test_a_gpu_of_size_0_has_no_size() -> None:
    (gpu,) = dcgm_gpus(line("USED", 0) + line("FREE", 0))
    assert (gpu.used_bytes, gpu.total_bytes) == (0, None)


def test_a_number_that_no_gpu_has_is_left_out() -> None:
    assert dcgm_gpus(line("USED", 1, f'gpu="{"9" * 5000}"')) == ()


@given(st.floats(), st.floats(), st.floats(), st.floats())
def test_sizes_are_none_or_sound(used: float, free: float, reserved: float, total: float) -> None:
    page = line("USED", used) + line("FREE", free) + line("RESERVED", reserved)
    (gpu,) = dcgm_gpus(page + line("TOTAL", total))
    assert gpu.used_bytes is None or 0 <= gpu.used_bytes < 1 << 52
    assert gpu.total_bytes is None or 0 < gpu.total_bytes < 1 << 53
    assert (gpu.why is None) == (gpu.used_bytes is not None and gpu.total_bytes is not None)


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


URL = "http://gpu1:9400/metrics"


@pytest.mark.parametrize(
    ("order", "gpus"),
    [
        (Order(node="n", url=URL), (0, 1, 2, 3)),
        (Order(node="n", url=URL, gpus=(3, 1)), (1, 3)),
        (Order(node="n", url=URL, first=2), (0, 1)),
        (Order(node="n", url=URL, first=2, visible="3,2,1"), (2, 3)),
        (Order(node="n", url=URL, first=1, visible="GPU-bb"), (2,)),
        (Order(node="n", url=URL, visible="1,2"), (1, 2)),
        (Order(node="n", url=URL, least=2), (0, 1, 2, 3)),
        (Order(node="n", url=URL, gpus=(0,), first=3, visible=""), (0,)),
    ],
)
def test_the_engines_gpus_are_chosen(order: Order, gpus: tuple[int, ...]) -> None:
    choice = choose(order, UUIDS)
    assert (choice.gpus, choice.lacking) == (gpus, None)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (Order(node="n", url=URL), f"GPUs 0, 1, 2, 3 of {URL} all count as the engine's"),
        (Order(node="n"), "GPUs 0, 1, 2, 3 of this machine all count as the engine's"),
        (Order(node="n", url=URL, least=2), "GPUs 0, 1, 2, 3 of"),
        (Order(node="n", url=URL, first=2), "shows 4 GPUs and the engine uses 2: GPUs 0, 1 count"),
    ],
)
def test_a_guess_at_the_engines_gpus_is_a_warning(order: Order, words: str) -> None:
    warning = choose(order, UUIDS).warning
    assert warning is not None
    assert words in warning
    assert "telemetry: {gpus: [...]}" in warning


@pytest.mark.parametrize(
    "order",
    [
        Order(node="n", first=2),
        Order(node="n", url=URL, first=4),
        Order(node="n", url=URL, least=4),
        Order(node="n", url=URL, first=1, visible="2,3"),
        Order(node="n", url=URL, visible="2,3"),
        Order(node="n", url=URL, gpus=(1,)),
    ],
)
def test_what_is_known_needs_no_warning(order: Order) -> None:
    assert choose(order, UUIDS).warning is None


@pytest.mark.parametrize(
    ("order", "cause"),
    [
        (
            Order(node="n", url=URL, first=5),
            f"the engine is to use 5 GPUs, and {URL} shows GPUs 0, 1, 2, 3",
        ),
        (
            Order(node="n", url=URL, least=5),
            f"the engine is to use 5 GPUs, and {URL} shows GPUs 0, 1, 2, 3",
        ),
        (
            Order(node="n", url=URL, first=2, visible="3,9"),
            f"is to use 2 GPUs, and {URL} shows GPUs 0, 1, 2, 3, of which CUDA_VISIBLE_DEVICES leaves 1",
        ),
        (
            Order(node="n", url=URL, gpus=(1, 5, 4)),
            f"the engine sheet names GPUs 4, 5, and {URL} has GPUs 0, 1, 2, 3",
        ),
        (
            Order(node="n", gpus=(7,)),
            "the engine sheet names GPU 7, and this machine has GPUs 0, 1, 2, 3",
        ),
    ],
)
def test_fewer_gpus_than_the_engine_uses_are_refused(order: Order, cause: str) -> None:
    lacking = choose(order, UUIDS).lacking
    assert lacking is not None
    assert lacking.cause.endswith(cause)
    assert "gpus" in lacking.mend


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
    assert ["RESERVED" in words for words in source.warnings] == [False, True]

    monkeypatch.setattr(Page, "text", line("USED", 6))
    first, second = source.sweep()
    assert (first.used_bytes, second.used_bytes) == (6 * MIB, None)
    assert second.why == "the page no longer has this GPU"

    monkeypatch.setattr(Page, "status", 503)
    assert [r.used_bytes for r in source.sweep()] == [None, None]
    assert all(r.why is not None and "answers 503" in r.why for r in source.sweep())


def pair(first: str, second: str = 'gpu="1"') -> str:
    return "".join(line("USED", 5, one) + line("FREE", 3, one) for one in (first, second))


def test_a_page_that_shows_too_few_says_so_until_it_shows_them(
    exporter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Dcgm(Order(node="n1", url=exporter, first=2))
    monkeypatch.setattr(Page, "text", line("USED", 5))
    assert [r.gpu for r in source.sweep()] == [0]
    assert source.lacking is not None
    assert "is to use 2 GPUs" in source.lacking.cause
    monkeypatch.setattr(Page, "text", pair(H100))
    assert [r.gpu for r in source.sweep()] == [0, 1]
    assert source.lacking is None


def test_a_neighbours_gpu_is_not_watched(exporter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Dcgm(Order(node="n1", url=exporter, gpus=(1,)))
    monkeypatch.setattr(Page, "text", pair(H100))
    assert [r.gpu for r in source.sweep()] == [1]
    assert [g.gpu for g in source.gpus()] == [1]
    # the warning about what is reserved is the only one
    assert len(source.warnings) == 1

    late = Dcgm(Order(node="n1", url=exporter, first=1))
    monkeypatch.setattr(Page, "text", line("USED", 5, 'gpu="1"'))
    assert [r.gpu for r in late.sweep()] == [1]
    monkeypatch.setattr(Page, "text", pair(H100))
    assert [r.gpu for r in late.sweep()] == [1]


def test_a_value_that_is_none_is_a_reading_with_its_reason(
    exporter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Dcgm(Order(node="n1", url=exporter))
    whole = line("USED", 5) + line("FREE", 3) + line("RESERVED", 1)
    monkeypatch.setattr(Page, "text", whole)
    source.sweep()
    monkeypatch.setattr(Page, "text", whole.replace(" 5", " NaN"))
    (reading,) = source.sweep()
    assert (reading.used_bytes, reading.total_bytes) == (None, 9 * MIB)
    assert reading.why == "DCGM_FI_DEV_FB_USED is nan, which is no size"

    # used without what is reserved would be too little, and the size of a GPU does not change
    monkeypatch.setattr(Page, "text", whole.replace(" 1\n", " NaN\n"))
    (reading,) = source.sweep()
    assert reading.used_bytes is None
    assert reading.why == "the page no longer has DCGM_FI_DEV_FB_RESERVED of this GPU"
    monkeypatch.setattr(Page, "text", whole.replace(" 3", " -3"))
    (reading,) = source.sweep()
    assert (reading.used_bytes, reading.total_bytes, reading.why) == (6 * MIB, 9 * MIB, None)
