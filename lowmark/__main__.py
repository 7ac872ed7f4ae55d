"""`python -m lowmark` is the command `lowmark`."""

import gc
import os


def main() -> None:
    # By default Python collects cycles every 700 objects. The objects of an import stay until the end: to search them
    # again and again, and once more when the process ends, took a fifth of a short command.
    gc.set_threshold(20_000, 20, 20)
    # numpy starts threads for linear algebra, which is not used here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from lowmark.app.cli import main

    try:
        main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
