# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The folder where torch compiles extensions, and from which it loads them whoever has written them."""

from __future__ import annotations

import os
from pathlib import Path

from accel_core.errors import CacheUnusable
from accel_core.native import trust


def check(name: str) -> None:
    """Make the folder of an extension if it is missing; raise CacheUnusable if another user can have written it."""
    try:
        path = _folder(name)
        trust.check_tree(path)
    except CacheUnusable as error:
        raise CacheUnusable(
            what=f"torch's extension {name} is not loaded",
            found=error.found,
            expected=error.expected,
            do=f"delete {path} and take write permission on the folders above from others (chmod go-w), "
            "or set TORCH_EXTENSIONS_DIR to a folder of your own",
        ) from None
    except OSError as error:
        raise CacheUnusable(
            what=f"torch's extension {name} cannot be kept",
            found=f"{error.filename or name}: {error.strerror or error}",
            expected="a folder that can be written",
            do="set TORCH_EXTENSIONS_DIR to a folder of your own",
        ) from error


def _folder(name: str) -> Path:
    """Return torch's build folder. torch makes it with the permissions of the umask, here with none for others."""
    from torch.utils import cpp_extension

    before = os.umask(0o077)
    try:
        return Path(cpp_extension._get_build_directory(name, verbose=False))
    finally:
        os.umask(before)
