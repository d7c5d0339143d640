"""The command tree."""

from __future__ import annotations

from pkgutil import resolve_name

import typer

from evenhand.cli.options import as_command, check_over_ranks

COMMANDS = {
    "compare": "compare_command:command",
    "train": "train_command:command",
    "tune": "tune_command:command",
    "recommend": "recommend_command:command",
    "rerank": "lists_commands:rerank",
    "serve": "model_commands:serve_model",
    "similar": "model_commands:similar",
    "export": "model_commands:export_vectors",
    "update": "model_commands:update",
    "evaluate": "lists_commands:evaluate",
    "audit": "lists_commands:audit_lists",
    "benchmark": "benchmark_command:command",
    "methods": "catalogue_commands:methods",
    "metrics": "catalogue_commands:metrics",
}
GROUPS = ("data", "reproduce")
"""Commands with commands of their own, which are the Typer `app` of such a file."""

app = typer.Typer(
    name="evenhand",
    help="Train recommenders that do not overrate what is popular, and show it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, place in COMMANDS.items():
    app.command(name)(as_command(resolve_name(f"evenhand.cli.{place}")))
for name in GROUPS:
    group = resolve_name(f"evenhand.cli.{name}_command:app")
    for one in group.registered_commands:
        one.callback = as_command(one.callback)
    app.add_typer(group, name=name)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
) -> None:
    if version:
        from evenhand import __version__

        typer.echo(f"evenhand {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is not None and context.invoked_subcommand != "data":
        check_over_ranks(context.invoked_subcommand)
