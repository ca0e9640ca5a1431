"""`python -m broker` is the `tidemark` command."""

from broker.cli.main import run

if __name__ == "__main__":
    run()
