"""A group of commands of which one, `show`, needs no name. It owns nothing else."""

from typing import Any

from typer.core import TyperGroup


class ShowsByDefault(TyperGroup):
    """`tidemark actors /root/node` is `tidemark actors show /root/node`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command there when it was left out."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)
