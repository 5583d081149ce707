# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Variables of the launcher's environment that ranks on other hosts need, as the `deepspeed` command passes them on."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from accel_core.launch.errors import InvalidArguments
from accel_core.launch.facts import Accelerator
from accel_core.launch.names import is_variable_name

#: Prefixes, beside those of the accelerator.
PREFIXES = ("MLFLOW", "PYTHON", "MV2", "UCX", "ACCEL_", "DS_ACCELERATOR")
#: Names the file with further variables, `NAME=value` in each line; looked for in the home and the working folder.
FILE_VARIABLE, FILE = "DS_ENV_FILE", ".deepspeed_env"


def collect(
    environ: Mapping[str, str], accelerator: Accelerator, directory: str, files: Iterable[Path]
) -> dict[str, str]:
    """Return the variables for other hosts; raises `InvalidArguments` for a line of a file.

    directory: where the program runs; it comes first in PYTHONPATH, unless empty.
    """
    starts = (*PREFIXES, *accelerator.exports)
    found = {
        name: value
        for name, value in environ.items()
        # Which devices are visible here says nothing about other hosts.
        if name.startswith(starts)
        and is_variable_name(name)
        and name not in accelerator.visible
        and "_VISIBLE_" not in name
    }
    if directory:
        found["PYTHONPATH"] = ":".join(filter(None, (directory, environ.get("PYTHONPATH"))))
    for path in files:
        if path.is_file():
            found.update(_read(path, environ))
    return dict(sorted(found.items()))


def files(environ: Mapping[str, str], home: Path, directory: Path) -> tuple[Path, ...]:
    """Return where a file with variables may be, the more important one last."""
    name = environ.get(FILE_VARIABLE) or FILE
    return home / name, directory / name


def _read(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    try:
        with path.open(encoding="utf-8") as file:
            _check_owner(path, os.fstat(file.fileno()), environ)
            text = file.read()
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidArguments):
            raise
        raise _invalid(str(path), str(error)) from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not is_variable_name(name.strip()) or "\0" in value:
            raise _invalid(f"{path}:{number}", repr(line[:200]))
        found[name.strip()] = value.strip()
    return found


def _check_owner(path: Path, file: os.stat_result, environ: Mapping[str, str]) -> None:
    """Raise `InvalidArguments` for a file that is found by chance and that another user can write.

    Its variables decide which programs and libraries the ranks run. A file that is named by its full path is meant.
    """
    if environ.get(FILE_VARIABLE) == str(path):
        return
    if file.st_uid not in (0, os.geteuid()) or file.st_mode & stat.S_IWOTH:
        raise InvalidArguments(
            what="the variables for other hosts are not read from a file that another user can write",
            found=f"{path}: owner {file.st_uid}, mode {stat.S_IMODE(file.st_mode):o}; this user is {os.geteuid()}",
            expected="a file of this user, or of root, that not everybody can write",
            do=f"remove or copy it; or name it by its full path in {FILE_VARIABLE}, if you trust it",
        )


def _invalid(where: str, found: str) -> InvalidArguments:
    return InvalidArguments(
        what="cannot read the variables for other hosts",
        found=f"{where}: {found}",
        expected="a line NAME=value for each variable",
        do=f"correct the file, or name another in {FILE_VARIABLE}",
    )
