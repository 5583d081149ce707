# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs that people and pipelines call alike, from the root of the repository: `python -m ci.<name>`."""
