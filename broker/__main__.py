"""`python -m broker` is the `tidemark` command. Next: broker/cli/main.py"""

from broker.cli.main import run

if __name__ == "__main__":
    run()
