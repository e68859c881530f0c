"""`python -m tidelog` is the `tidelog` command."""

from tidelog.cli.main import main

main()
