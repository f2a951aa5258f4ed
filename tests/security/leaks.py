"""Which files hold a secret: plain, or as addresses, JSON and base64 write it, packed or not."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from tests.command_line import Run

LARGEST = 1 << 28
"""Bytes of a file that are looked at; no test writes a larger one."""


def leaks(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """A line for each file below the folder that holds one of the secrets (name -> value)."""
    forms = {name: set(forms_of(value)) for name, value in secrets.items()}
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
            continue
        content = _content(path)
        found += [f"{path}: {name}" for name, all_ in forms.items() if any(form in content for form in all_)]
    return found


def forms_of(secret: str) -> Iterator[bytes]:
    """How a secret may be written."""
    yield secret.encode()
    yield quote(secret, safe="").encode()
    yield json.dumps(secret)[1:-1].encode()
    for before in range(3):  # base64 of a text that has it behind so many bytes, without the ends that depend on others
        text = base64.b64encode(b" " * before + secret.encode()).rstrip(b"=")
        yield text[(0, 2, 3)[before] : -1]


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError):  # it is gone, or is no archive
        return b""


class Told:
    """Writes what commands say into files, so that it is looked through too."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run, self.folder, self.codes = run, folder, list[int]()

    def __call__(self, *arguments: str) -> int:
        code, out, err = self.run(*arguments)
        self.codes.append(code)
        (self.folder / f"said-{len(self.codes)}.txt").write_text(f"{arguments}\n{out}\n{err}")
        return code
