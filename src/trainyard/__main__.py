"""`python -m trainyard`."""

from trainyard.cli.main import main

if __name__ == "__main__":
    main()
