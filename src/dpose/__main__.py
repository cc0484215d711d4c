"""`python -m dpose`."""

from dpose.cli import run

if __name__ == "__main__":
    run()
