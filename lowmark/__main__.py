"""`python -m lowmark` is the command `lowmark`."""

import gc
import os

from lowmark.app.imports import importing


def main() -> None:
    # numpy starts threads for linear algebra, which is not used here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with importing():
        from lowmark.app.cli import main
    try:
        main()
    finally:
        gc.freeze()  # Python would search all objects once more before it ends


if __name__ == "__main__":
    main()
