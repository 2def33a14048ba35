"""`python -m upmri` is `upmri`."""

from upmri.cli import main

main()
