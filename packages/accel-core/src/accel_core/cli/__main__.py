# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python -m accel_core.cli`, for machines where the script `accel` is not on PATH."""

from __future__ import annotations

import sys

from accel_core.cli.main import main

sys.exit(main())
