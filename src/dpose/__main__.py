"""`python -m dpose`, which imports nothing more from the current folder, as the console script `dpose` never does.

Python itself has looked there first for what it needed to get here: among files of others say `python -P -m dpose`.
"""

import contextlib
import os
import sys

if __name__ == "__main__":
    with contextlib.suppress(OSError):
        # unless dpose itself comes from there, or the folder was put there on purpose
        if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(__file__)) and not sys.flags.safe_path:
            del sys.path[0]
    from dpose.cli import run

    run()
