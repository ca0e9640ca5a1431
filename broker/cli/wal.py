"""`tidemark wal`: looks into log files without a broker. Next: broker/wal/inspect.py"""

import typer

app = typer.Typer(help="Look into log files; no broker needed.", no_args_is_help=True)
