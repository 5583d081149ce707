# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
__version__ = "2.13.0"
cuda = None
hip = None
xpu = None
