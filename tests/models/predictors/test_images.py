"""Images by address: bounds on size and time, a server that is down is not asked for ever, the platform is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import pytest

from hitl.errors import BadInput, Refused
from hitl.models.predictors import images
from hitl.models.predictors.features import places
from hitl.models.predictors.images import Images, download

image = pytest.importorskip("PIL.Image")


def png(colour: str) -> bytes:
    out = BytesIO()
    image.new("RGB", (4, 4), colour).save(out, "PNG")
    return out.getvalue()


class Handler(BaseHTTPRequestHandler):
    """/red.png an image, /large 3 MB, /slow a byte every 50 ms, /moved a redirect to a file of this machine."""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "file:///etc/hostname")
            self.end_headers()
            return
        self.send_response({"/absent": 404, "/broken": 500}.get(self.path, 200))
        self.end_headers()
        if self.path == "/red.png":
            self.wfile.write(png("red"))
        elif self.path == "/large":
            self.wfile.write(b"0" * 3_000_000)
        elif self.path == "/slow":
            for _ in range(100):
                self.wfile.write(b"0")
                time.sleep(0.05)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/absent", r"/absent: the server said 404 Not Found"),
        ("/broken", r"/broken: the server said 500"),
        ("/large", r"/large: larger than 1 MB"),
        ("/moved", r"/moved: the server said 302"),
    ],
)
def test_what_is_no_image_there_says_why(elsewhere: str, path: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        download(elsewhere + path, max_bytes=1_000_000)


def test_a_slow_answer_ends(elsewhere: str) -> None:
    with pytest.raises(TimeoutError):
        download(f"{elsewhere}/slow", seconds=0.2)


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://example.com/a.png", "s3://bucket/a.png"])
def test_other_addresses_are_not_asked_for(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadInput, match=r"expected a path, or an address with http:// or https://"):
        Images(tmp_path).open(address)


def test_a_server_that_is_down_is_asked_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refused(address: str) -> bytes:
        asked.append(address)
        if "down" in address:
            raise ConnectionError("refused")
        return png("blue")

    monkeypatch.setattr(images, "download", refused)
    found = Images(tmp_path)
    for n in range(10):
        with pytest.raises(BadInput, match="refused" if n < 3 else "skipped, because down has not answered 3 times"):
            found.open(f"http://down/{n}.png")
        assert found.open(f"http://up/{n}.png").getpixel((0, 0)) == (0, 0, 255)
    assert sum("down" in address for address in asked) == 3


class Platform:
    """Serves /data/upload/, but for one file."""

    def serves(self, address: str) -> bool:
        return address.startswith("/data/upload/")

    def fetch(self, address: str) -> bytes:
        if "lost" in address:
            raise Refused("the platform said 404")
        return png("green")


def test_what_the_platform_serves_is_asked_of_it(tmp_path: Path) -> None:
    found = Images(tmp_path, Platform())
    assert found.open("/data/upload/1/a.png").getpixel((0, 0)) == (0, 128, 0)
    with pytest.raises(BadInput, match=r"/data/upload/lost.png: the platform said 404"):
        found.open("/data/upload/lost.png")
    with pytest.raises(BadInput, match=r"/data/upload/1/a.png: no such file"):
        Images(tmp_path).open("/data/upload/1/a.png")
    (tmp_path / "b.png").write_bytes(png("red"))
    assert found.open("b.png").getpixel((0, 0)) == (255, 0, 0)
    assert (
        places(["a"], ["/data/upload/1/a.png"], found.stamp).digests
        == places(["b"], ["/data/upload/1/a.png"], found.stamp).digests
    )
