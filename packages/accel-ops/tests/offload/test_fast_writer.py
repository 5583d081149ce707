# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The file that DeepSpeed's FAST writer writes to is one of its own."""

from pathlib import Path
from types import SimpleNamespace

from accel_ops.offload import fast_writer


def test_a_link_with_the_name_of_the_unfinished_file_is_not_followed(tmp_path: Path) -> None:
    partial = tmp_path / "file.0.writing"
    partial.symlink_to("not yet there")
    factory = SimpleNamespace(_data_parallel_writer=SimpleNamespace(global_rank=0))
    fast_writer.create(
        lambda _factory, path, _: Path(path).write_text("saved"), factory, tmp_path / "file", False
    )
    assert not (tmp_path / "not yet there").exists()
    assert partial.read_text() == "saved"
