"""A command group that runs its command `show` when no command is named."""

from typing import Any

from typer.core import TyperGroup


class ShowByDefaultGroup(TyperGroup):
    """`tidemark actors /root/node` is `tidemark actors show /root/node`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `show` when no command is named."""
        # `--help` alone is about the group, not about `show`.
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)
