# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The launcher: a plan of hosts, ranks and cores as data, and the engines that carry it out."""
