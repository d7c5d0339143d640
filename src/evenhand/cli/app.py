"""The command tree."""

from __future__ import annotations

import typer

from evenhand.cli import (
    audit_command,
    benchmark_command,
    compare_command,
    data_command,
    evaluate_command,
    export_command,
    methods_command,
    metrics_command,
    recommend_command,
    reproduce_command,
    rerank_command,
    serve_command,
    similar_command,
    train_command,
    tune_command,
    update_command,
)
from evenhand.cli.options import as_command, check_over_ranks

app = typer.Typer(
    name="evenhand",
    help="Train recommenders that do not overrate what is popular, and show it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compare")(compare_command.command)
app.command("train")(train_command.command)
app.command("tune")(tune_command.command)
app.command("recommend")(recommend_command.command)
app.command("rerank")(rerank_command.command)
app.command("serve")(serve_command.command)
app.command("similar")(similar_command.command)
app.command("export")(export_command.command)
app.command("update")(update_command.command)
app.command("evaluate")(evaluate_command.command)
app.command("audit")(audit_command.command)
app.command("benchmark")(benchmark_command.command)
app.command("methods")(methods_command.command)
app.command("metrics")(metrics_command.command)
app.add_typer(data_command.app, name="data")
app.add_typer(reproduce_command.app, name="reproduce")

for commands in (app, data_command.app, reproduce_command.app):
    for one in commands.registered_commands:
        assert one.callback is not None
        one.callback = as_command(one.callback)


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
