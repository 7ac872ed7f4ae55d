"""Makes the state that later versions of lowmark must be able to go on from: `python -m tests.upgrade`.

Run it once for a release, and keep the files of former ones as long as that release's state is to be read.
"""

from __future__ import annotations

from lowmark import __version__
from tests.upgrade import installation, stored

if __name__ == "__main__":
    path = stored.FOLDER / f"{__version__}.json.gz"
    stored.write(path, stored.make())
    print(path)
    archive = stored.FOLDER / f"{__version__}.tar.xz"
    installation.make(archive)
    print(archive)
