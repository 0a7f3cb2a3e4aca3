"""`python -m cytoc` is the command line, `cytoc`."""
from ._tools import cytoc

cytoc()
