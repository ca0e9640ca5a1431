"""`tidemark auth`: users, roles and tokens of a broker that controls access."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.commands.flags import Config, DataDir, Json, Server

app = typer.Typer(
    help="Say who may do what: users, roles, tokens. In force while the setting auth is on.",
    no_args_is_help=True,
)
roles = typer.Typer(help="Sets of grants, each ACTION:KIND:PATTERN.", no_args_is_help=True)
users = typer.Typer(help="Who may call: names with roles.", no_args_is_help=True)
tokens = typer.Typer(help="Proofs of users; each is printed once.", no_args_is_help=True)
app.add_typer(roles, name="role")
app.add_typer(users, name="user")
app.add_typer(tokens, name="token")

Role = Annotated[str, typer.Argument(metavar="ROLE", help="Name of the role.")]
Grants = Annotated[
    list[str],
    typer.Argument(
        metavar="GRANT...",
        help="ACTION:KIND:PATTERN, such as consume:collection:orders-*. Actions: produce, consume,"
        " group, ddl, broadcast, txn, admin, chaos, observe. Kinds: collection, channel, group,"
        " cursor, cluster. * stands for all of them.",
    ),
]
User = Annotated[
    str, typer.Argument(metavar="USER", help="Name of the user, as in its certificate if any.")
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", "-r", metavar="ROLE", help="A role of the user; may be repeated."),
]


@app.command()
def whoami(server: Server = "", json: Json = False) -> None:
    """Show who the broker takes you for, and what you may do."""
    from broker.cli.access.access_tables import show_me

    show_me(server, as_json=json)


@app.command()
def bootstrap(
    data_dir: DataDir = None,
    user: Annotated[str, typer.Option(metavar="USER", help="Who gets the role admin.")] = "admin",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new file for the token; default: it is printed."),
    ] = None,
    config: Config = None,
) -> None:
    """Make an administrator and a token, in the data folder of a broker that does not run."""
    from broker.cli.access.offline_administrator import make_administrator

    make_administrator({"data_dir": data_dir, "config": config}, user, out)


@roles.command("add")
def add_role(role: Role, grants: Grants, server: Server = "") -> None:
    """Make a role."""
    from broker.cli.access.access_tables import change

    change(server, lambda log: log.auth.add_role(role, grants), f"role {role} added")


@roles.command("set")
def set_role(role: Role, grants: Grants, server: Server = "") -> None:
    """Replace all grants of a role."""
    from broker.cli.access.access_tables import change

    change(server, lambda log: log.auth.set_role(role, grants), f"role {role} changed")


@roles.command("drop")
def drop_role(role: Role, server: Server = "") -> None:
    """Drop a role that no user has."""
    from broker.cli.access.access_tables import change

    change(server, lambda log: log.auth.drop_role(role), f"role {role} dropped")


@roles.command("list")
def list_roles(server: Server = "", json: Json = False) -> None:
    """List roles with their grants."""
    from broker.cli.access.access_tables import show_roles

    show_roles(server, as_json=json)


@users.command("add")
def add_user(user: User, role: Roles = None, server: Server = "") -> None:
    """Make a user."""
    from broker.cli.access.access_tables import change

    change(server, lambda log: log.auth.add_user(user, role or []), f"user {user} added")


@users.command("set")
def set_user(user: User, role: Roles = None, server: Server = "") -> None:
    """Replace all roles of a user; without a role the user may do nothing."""
    from broker.cli.access.access_tables import change

    change(server, lambda log: log.auth.set_user(user, role or []), f"user {user} changed")


@users.command("drop")
def drop_user(user: User, server: Server = "") -> None:
    """Drop a user and revoke the user's tokens; what they have opened ends."""
    from broker.cli.access.access_tables import change

    change(server, lambda log: log.auth.drop_user(user), f"user {user} dropped")


@users.command("list")
def list_users(server: Server = "", json: Json = False) -> None:
    """List users with their roles."""
    from broker.cli.access.access_tables import show_users

    show_users(server, as_json=json)


@tokens.command("add")
def add_token(
    user: User,
    expires: Annotated[
        str, typer.Option(metavar="DURATION", help="Such as 30d, 12h or 90m; default: never.")
    ] = "",
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    server: Server = "",
    json: Json = False,
) -> None:
    """Make a token and print it; it cannot be shown again."""
    from broker.cli.access.access_tables import make_token

    make_token(server, user, expires, note, as_json=json)


@tokens.command("revoke")
def revoke_token(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `tidemark auth token list` shows.")],
    server: Server = "",
) -> None:
    """Revoke a token; what it has opened ends within 2 s."""
    from broker.cli.access.access_tables import change

    change(server, lambda log: log.auth.revoke_token(id), f"token {id} revoked")


@tokens.command("list")
def list_tokens(server: Server = "", json: Json = False) -> None:
    """List tokens by user; never their secrets."""
    from broker.cli.access.access_tables import show_tokens

    show_tokens(server, as_json=json)
