"""Read images from paths, web addresses and the labeling platform. Downloads are limited in size and time."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from hitl.errors import BadInput, HitlError
from hitl.models.predictors.inputs import stamp
from hitl.models.predictors.predictor import VISION, required
from hitl.platform import Connector

READERS = min(8, os.cpu_count() or 1)
"""Number of threads that open and transform the images of a batch."""

MAX_BYTES = 50_000_000
SECONDS = 30.0
"""Limits for an image on another server: its size in bytes, and the seconds for the whole download."""

STRIKES = 3
"""Number of consecutive failures after which nothing more is requested from a server."""


@dataclass(frozen=True, slots=True)
class Images:
    """Reader of images by path or address.

    Attributes:
        folder: folder that relative paths start from.
        files: the platform, which fetches the addresses that it serves itself; None: no platform.
        failures: number of consecutive failed requests per server.
    """

    folder: Path
    files: Connector | None = None
    failures: Counter[str] = field(default_factory=Counter)

    def stamp(self, place: str) -> str:
        """Return a text that changes when the image file does; for an address, the address itself."""
        return place if self._is_remote(place) else stamp(self.folder / place, place)

    def open(self, place: str) -> Any:
        """Return the image in RGB. Raise BadInput with the reason if it cannot be read."""
        if not self._is_remote(place):
            return open_image(self.folder / place)
        if self._is_served(place):
            assert self.files is not None
            try:
                return open_image(self.files.fetch(place), place)
            except HitlError as error:
                raise BadInput(f"{place}: {error}") from None
        host = urlsplit(place).netloc
        if self.failures[host] >= STRIKES:
            raise BadInput(f"{place}: skipped, because {host} has not answered {STRIKES} times in a row")
        try:
            content = download(place)
        except (TimeoutError, ConnectionError) as error:
            self.failures[host] += 1
            raise BadInput(f"{place}: {error}") from None
        self.failures[host] = 0
        return open_image(content, place)

    def _is_served(self, place: str) -> bool:
        return self.files is not None and self.files.serves(place)

    def _is_remote(self, place: str) -> bool:
        return "://" in place or self._is_served(place)


def open_image(file: Path | bytes, name: str | None = None) -> Any:
    """Read an image, from a file or from bytes, in RGB. Raise BadInput with the reason if it cannot be read."""
    image = required("PIL.Image", "--image", VISION)
    where = name or str(file)
    if isinstance(file, Path) and not file.is_file():
        raise BadInput(f"{where}: no such file")
    try:
        with image.open(BytesIO(file) if isinstance(file, bytes) else file) as opened:
            return opened.convert("RGB")
    except Exception as error:  # image readers raise all sorts of errors
        raise BadInput(f"{where}: cannot be read as an image: {type(error).__name__}") from None


def download(address: str, seconds: float = SECONDS, max_bytes: int = MAX_BYTES) -> bytes:
    """Download the content of an http(s) address.

    Raise ConnectionError or TimeoutError if a retry may succeed, otherwise BadInput.
    """
    if urlsplit(address).scheme not in ("http", "https"):
        raise BadInput(f"{address}: expected a path, or an address with http:// or https://")
    late = TimeoutError(f"no answer within {seconds:g} s")
    deadline, content = time.monotonic() + seconds, bytearray()
    try:
        with urlopen(Request(address, headers={"User-Agent": "hitl"}), timeout=seconds) as answer:  # nosec B310  # see above
            while chunk := answer.read1(1 << 16):
                content += chunk
                if len(content) > max_bytes:
                    raise BadInput(f"{address}: larger than {max_bytes / 1e6:.0f} MB")
                if time.monotonic() > deadline:
                    raise late
    except HTTPError as error:
        raise BadInput(f"{address}: the server said {error.code} {error.reason}") from None
    except URLError as error:
        raise (late if isinstance(error.reason, TimeoutError) else ConnectionError(str(error.reason))) from None
    except TimeoutError:
        raise late from None
    except ValueError as error:
        raise BadInput(f"{address}: {error}") from None
    return bytes(content)
