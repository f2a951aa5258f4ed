"""Arrays in files of numpy, .npz and .npy: as named arrays, checked before they are made.

A header may state any shape; numpy allocates room for it before it looks for the numbers.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadTable
from hitl.tables.files import parsing
from hitl.tables.limits import require_harmless

KINDS = "fiubUS"
"""Numbers, yes or no, and text; objects would be pickled, and a pickle is code."""


def read_arrays(
    path: Path, wanted: Callable[[str], bool] = lambda name: True
) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Return the wanted arrays by name, and the names of all; the one of .npy is called "". Raises BadTable."""
    if not path.is_file():
        raise BadTable(f"{path}: no such file")
    with parsing(path, path.suffix.lower().removeprefix(".")):
        if path.suffix.lower() == ".npy":
            with path.open("rb") as file:
                _require_numbers(path, "the array", file, path.stat().st_size)
            return {"": np.load(path, allow_pickle=False)}, [""]
        require_harmless(path, "npz")
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".npy") and wanted(member.filename.removesuffix(".npy")):
                    with archive.open(member) as file:
                        _require_numbers(path, member.filename, file, member.file_size)
        with np.load(path, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files if wanted(name)}, list(loaded.files)


def _require_numbers(path: Path, name: str, file: IO[bytes], size: int) -> None:
    """Raise BadTable where a header promises more than the file holds, or objects."""
    numpy_format: Any = np.lib.format
    read = {1: numpy_format.read_array_header_1_0, 2: numpy_format.read_array_header_2_0}
    version = numpy_format.read_magic(file)[0]
    if version not in read:
        raise BadTable(f"{path}: {name} is of version {version} of the format; expected 1 or 2")
    shape, _, kind = read[version](file)
    if kind.hasobject:
        raise BadTable(f"{path}: holds Python objects; save names as text, np.array(names, dtype=str)")
    if kind.kind not in KINDS:
        raise BadTable(f"{path}: {name} holds {kind}; expected numbers or text")
    if math.prod(shape) * max(kind.itemsize, 1) > size:
        raise BadTable(f"{path}: {name} should have the shape {shape}, for which the file is too short")
