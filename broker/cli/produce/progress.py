"""The progress bar of `tidemark produce`, in bytes of the input."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from broker.cli.produce.input_file import InputFile, shows_progress


@contextmanager
def progress(sources: Sequence[InputFile]) -> Iterator[Callable[[], object]]:
    """Yields the function that shows how far the sources are read, if there is a bar at all."""
    if not shows_progress(sources):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    sizes = [it.size for it in sources if it.size is not None]
    total = sum(sizes) if len(sizes) == len(sources) else None
    columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("appending", total=total)
        yield lambda: bar.update(task, completed=sum(it.taken for it in sources))
