"""Read and write places: local paths and addresses, also globs: `labels/*.parquet`, `s3://bucket/labels/*.parquet`.

A place without `://` is a local path. Addresses are read and written with fsspec (the extra `[scale]`), a complete file
at a time. If a file system needs another package (s3fs, gcsfs), the error message names it.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from hitl.errors import BadTable, HitlError, MissingExtra
from hitl.tables.write import atomic


def is_address(place: str) -> bool:
    """Return True for an address, False for a local path."""
    return "://" in place


def join(folder: str, name: str) -> str:
    """Return the place of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_address(folder) else str(Path(folder) / name)


def matching(pattern: str) -> list[str]:
    """Return the files or folders that a place or glob names, sorted. Raise BadTable if there are none."""
    if exists(pattern):  # also a name that looks like a pattern because it has a bracket
        return [pattern]
    if not is_address(pattern):
        places = sorted(glob.glob(pattern, recursive=True))
    else:
        with _reached(pattern) as (system, path):
            places = sorted(map(system.unstrip_protocol, system.glob(path))) if glob.has_magic(path) else []
    if not places:
        raise BadTable(f"{pattern}: no such file")
    return places


def exists(place: str) -> bool:
    """Return True if the file or folder exists."""
    if not is_address(place):
        return Path(place).exists()
    with _reached(place) as (system, path):
        return bool(system.exists(path))


def read(place: str) -> bytes:
    """Return the bytes of a file. Raise BadTable if it cannot be read."""
    with _reached(place) as (system, path):
        content: bytes = system.cat_file(path) if is_address(place) else Path(place).read_bytes()
        return content


def write(place: str, content: bytes | pa.Buffer) -> None:
    """Write a file, atomically if it is local. At an address, create its folder if necessary."""
    if not is_address(place):
        with atomic(place) as handle:
            handle.write(content)
        return
    with _reached(place) as (system, path):
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
        system.pipe_file(path, bytes(content))


def remove(folder: str) -> None:
    """Remove a folder and its contents, if it exists."""
    if not is_address(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with _reached(folder) as (system, path):
        if system.exists(path):
            system.rm(path, recursive=True)


def mapped(place: str) -> Any:
    """Open a file for Arrow: mapped into memory if it is local, otherwise read into memory."""
    with _reached(place):
        return pa.BufferReader(read(place)) if is_address(place) else pa.memory_map(place)


@contextmanager
def local(place: str, folder: Path) -> Iterator[Path]:
    """Yield a local path: the file itself, or a temporary copy in `folder`. Errors in the block name the place."""
    if not is_address(place):
        yield Path(place)
        return
    copy = folder / place.rpartition("/")[2]
    with _reached(place) as (system, path):
        system.get_file(path, str(copy))
    try:
        yield copy
    except HitlError as error:
        raise type(error)(str(error).replace(str(copy), place)) from error
    finally:
        copy.unlink(missing_ok=True)


@contextmanager
def _reached(place: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system (None if local) and the path. Raise its errors as BadTable, naming the place."""
    system, path = (None, place) if not is_address(place) else _system(place)
    try:
        yield system, path
    except FileNotFoundError:
        raise BadTable(f"{place}: no such file") from None
    except OSError as error:
        raise BadTable(f"{place}: cannot be reached: {error.strerror or error}") from None


def _system(place: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise MissingExtra(f"{place}: addresses need fsspec; pip install 'hitl-toolkit[scale]'") from None
    try:
        address: tuple[Any, str] = fsspec.core.url_to_fs(place)
    except ImportError as error:
        raise MissingExtra(f"{place}: {error}") from None
    except ValueError as error:
        raise BadTable(f"{place}: {error}") from None
    return address
