"""Makes the state that later versions of lowmark must be able to go on from: `python -m tests.upgrade`.

Run it once for a release, and keep the files of former ones as long as that release's state is to be read.
"""

from __future__ import annotations

from lowmark import __version__
from tests.upgrade.stored import FOLDER, make, write

if __name__ == "__main__":
    path = FOLDER / f"{__version__}.json.gz"
    write(path, make())
    print(path)
