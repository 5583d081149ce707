# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The build hook of accel-ops: next to this file in an sdist, in its own package in a checkout."""

import importlib.util
from pathlib import Path

_HERE = Path(__file__).parent
_COPY = _HERE / "library_hook.py"
_SPEC = importlib.util.spec_from_file_location(
    "library_hook", _COPY if _COPY.exists() else _HERE.parent / "accel-ops" / "hatch_build.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
LibraryHook = _MODULE.LibraryHook
