"""Tables written as Hugging Face datasets write them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa


def dataset(folder: Path, *parts: pa.Table) -> Path:
    """A folder as `Dataset.save_to_disk` writes it."""
    folder.mkdir()
    names = [f"data-{n:05d}-of-{len(parts):05d}.arrow" for n in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def feather(path: Path, table: pa.Table) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return path
