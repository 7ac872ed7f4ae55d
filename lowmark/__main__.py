"""`python -m lowmark` is the command `lowmark`."""

from lowmark.app.cli import main

main()
