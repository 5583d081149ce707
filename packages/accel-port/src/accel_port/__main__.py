# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python -m accel_port`, the same as `accel port`."""

from accel_port.command import main

raise SystemExit(main())
