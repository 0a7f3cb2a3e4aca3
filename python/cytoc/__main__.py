# SPDX-License-Identifier: Apache-2.0
"""`python -m cytoc` is the command line, `cytoc`."""
from ._tools import cytoc

cytoc()
