# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.runtimes.cann COMMAND …`, with a Python that has torch_npu: runs a command on the emulated CANN."""

import os
import sys

from tests.runtimes.cann import build

if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    os.execvpe(sys.argv[1], sys.argv[1:], build.environment(dict(os.environ)))
