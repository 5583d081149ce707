# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A vendor's runtime that fails with anything but ImportError ends `import deepspeed`."""

import sys
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "torch_npu.py").write_text(
        "raise OSError('libascend_hal.so: cannot open shared object file')"
    )
    sys.path.insert(0, folder)
    try:
        import deepspeed  # noqa: F401
    except OSError as error:
        print("import deepspeed:", error)
