"""Images by the place where they are: a path, an address, or a file that the labeling platform serves itself.

An address of elsewhere is asked for with bounds on size and time. A server that does not answer three times in a row is
not asked again, so that a thousand images of a server that is down cost a few waits.
"""

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
from hitl.models.predictors.predictor import required
from hitl.platform import Connector

INSTALL = "hitl-toolkit[vision]"
READERS = min(8, os.cpu_count() or 1)
"""Threads that open and transform the images of a batch."""

MOST_BYTES = 50_000_000
SECONDS = 30.0
"""How large an image of another server may be, and how long it may take in all."""

STRIKES = 3
"""After so many times in a row without an answer, a server is not asked again."""

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Images:
    """Where images are.

    Attributes:
        folder: what relative paths are relative to.
        files: the platform, for the addresses that it serves itself; None: it serves none.
    """

    folder: Path
    files: Connector | None = None
    silent: Counter[str] = field(default_factory=Counter)

    def stamp(self, place: str) -> str:
        """What changes with the image: its path, size and time; of an address the address itself."""
        if self._is_remote(place):
            return place
        try:
            status = (self.folder / place).stat()
        except OSError:
            return f"{place} is missing"
        return f"{place} {status.st_size} {status.st_mtime_ns}"

    def open(self, place: str) -> Any:
        """The image in RGB. Raises BadInput, saying why there is none."""
        if not self._is_remote(place):
            return opened(self.folder / place)
        if self.files is not None and self.files.serves(place):
            try:
                return opened(self.files.fetch(place), place)
            except HitlError as error:
                raise BadInput(f"{place}: {error}") from None
        return opened(self._fetch(place), place)

    def _is_remote(self, place: str) -> bool:
        return "://" in place or (self.files is not None and self.files.serves(place))

    def _fetch(self, address: str) -> bytes:
        host = urlsplit(address).netloc
        if self.silent[host] >= STRIKES:
            raise BadInput(f"{address}: not asked for, {host} has not answered {STRIKES} times in a row")
        try:
            content = fetched(address)
        except TimeoutError:
            self.silent[host] += 1
            raise BadInput(f"{address}: no answer within {SECONDS:.0f} s") from None
        except ConnectionError as error:
            self.silent[host] += 1
            raise BadInput(f"{address}: {error}") from None
        self.silent[host] = 0
        return content


def opened(file: Path | bytes, name: str | None = None) -> Any:
    """The image of a file or its content, in RGB. Raises BadInput, saying why there is none."""
    image = required("PIL.Image", "--image", INSTALL)
    where = name or str(file)
    if isinstance(file, Path) and not file.is_file():
        raise BadInput(f"{where}: no such file")
    try:
        with image.open(BytesIO(file) if isinstance(file, bytes) else file) as found:
            return found.convert("RGB")
    except Exception as error:  # readers of broken files raise all sorts
        raise BadInput(f"{where}: cannot be read as an image: {type(error).__name__}") from None


def fetched(address: str, seconds: float = SECONDS, most: int = MOST_BYTES) -> bytes:
    """What an http(s) address holds, at most `most` bytes within `seconds`.

    Raises BadInput where the server says no or it is too large, ConnectionError and TimeoutError where it may be
    tried again.
    """
    if urlsplit(address).scheme not in ("http", "https"):
        raise BadInput(f"{address}: expected a path, or an address with http:// or https://")
    last, parts, size = time.monotonic() + seconds, [], 0
    try:
        with urlopen(Request(address, headers={"User-Agent": "hitl"}), timeout=seconds) as answer:  # nosec B310  # see above
            while part := answer.read1(_CHUNK):
                size += len(part)
                parts.append(part)
                if size > most:
                    raise BadInput(f"{address}: larger than {most / 1e6:.0f} MB")
                if time.monotonic() > last:
                    raise TimeoutError
    except HTTPError as error:
        raise BadInput(f"{address}: the server said {error.code} {error.reason}") from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise TimeoutError from None
        raise ConnectionError(str(error.reason)) from None
    except ValueError as error:
        raise BadInput(f"{address}: {error}") from None
    return b"".join(parts)
