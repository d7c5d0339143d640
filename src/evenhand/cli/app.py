"""The command tree."""

from __future__ import annotations

import typer

from evenhand.cli import (
    audit,
    compare,
    data,
    evaluate,
    export,
    methods,
    recommend,
    reproduce,
    rerank,
    similar,
    train,
    tune,
    update,
)

app = typer.Typer(
    name="evenhand",
    help="Train recommenders that do not overrate what is popular, and show it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compare")(compare.command)
app.command("train")(train.command)
app.command("tune")(tune.command)
app.command("recommend")(recommend.command)
app.command("rerank")(rerank.command)
app.command("similar")(similar.command)
app.command("export")(export.command)
app.command("update")(update.command)
app.command("evaluate")(evaluate.command)
app.command("audit")(audit.command)
app.command("methods")(methods.command)
app.add_typer(data.app, name="data")
app.add_typer(reproduce.app, name="reproduce")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
) -> None:
    if version:
        from evenhand import __version__

        typer.echo(f"evenhand {__version__}")
        raise typer.Exit
