"""The command line: a command parses, calls the library, and prints; each has a file, or shares one with its like."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from typer import Typer

COMMANDS = {
    "compare": "compare_command:command",
    "train": "train_command:command",
    "tune": "tune_command:command",
    "recommend": "model_commands:recommend",
    "rerank": "lists_commands:rerank",
    "serve": "model_commands:serve_model",
    "similar": "model_commands:similar",
    "export": "model_commands:export_vectors",
    "update": "model_commands:update",
    "evaluate": "lists_commands:evaluate",
    "audit": "lists_commands:audit_lists",
    "benchmark": "published_commands:benchmark",
    "methods": "catalogue_commands:methods",
    "metrics": "catalogue_commands:metrics",
}
GROUPS = {"data": "catalogue_commands:data_app", "reproduce": "published_commands:reproduce_app"}
"""Commands with commands of their own."""


def main() -> NoReturn:
    """Run `evenhand`; a person's mistake ends with one line and exit code 2, a failed run with 1."""
    from evenhand.utils import stopping

    try:
        stopping.end_on_sigterm()
        _ready_output()
        code = _run()
    except KeyboardInterrupt:
        code = 130
    if code == 130:  # Typer, too, answers so where it was interrupted
        _leave("stopped.", stopping.exit_code())
    sys.exit(code)


def _run() -> int:
    """Parse, call, and turn what goes wrong into a sentence; the exit code."""
    import typer

    from evenhand.utils import stopping
    from evenhand.utils.errors import InputError, RunError, StoppedError

    # The base of all that Typer finds wrong with a command line has no public name in every version of it.
    usage_problem = cast("type[Exception]", typer.BadParameter.__mro__[2])
    app = command_tree()
    try:
        with _with_the_others():
            code = app(prog_name="evenhand", standalone_mode=False) or 0
        sys.stdout.flush()
        return int(code)
    except StoppedError as problem:
        _leave(str(problem), stopping.exit_code())
    except (InputError, RunError) as problem:
        _leave(str(problem), 2 if isinstance(problem, InputError) else 1)
    except typer.Abort:
        return 130
    except usage_problem as problem:
        _leave(_usage(problem), 2)
    except BrokenPipeError:  # the reader has what it wanted
        drop_output()
        return 0
    except (MemoryError, RuntimeError) as problem:
        from evenhand.utils.memory import is_shortage

        if not is_shortage(problem):
            raise
        _leave("there is not enough memory for this; ask for less at a time, or give it a larger machine.", 1)
    except OSError as problem:
        drop_output()
        _leave(f"{problem.filename or 'the output cannot be written'}: {problem.strerror or problem}.", 2)


@cache
def command_tree() -> "Typer":
    import typer

    from evenhand import __version__
    from evenhand.cli.options import as_command, check_over_ranks

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
    for name, place in GROUPS.items():
        group = resolve_name(f"evenhand.cli.{place}")
        for one in group.registered_commands:
            one.callback = as_command(one.callback)
        app.add_typer(group, name=name)

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True),
    ) -> None:
        if version:
            typer.echo(f"evenhand {__version__}")
            raise typer.Exit
        if context.invoked_subcommand is not None and context.invoked_subcommand != "data":
            check_over_ranks(context.invoked_subcommand)

    return app


@contextmanager
def _with_the_others() -> Iterator[None]:
    """Under `torchrun`: joined with the other processes; a mistake of one is that of all, and rank 0 speaks."""
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    from evenhand.utils.world import World

    world = World.from_environment()
    world.hush()
    with world.reporting():
        yield


def _ready_output() -> None:
    """Print anywhere: what an encoding lacks is spelled out, and where a stream was closed nothing is shown."""
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:  # or the next file that is opened would be printed to
        pass
    os.close(spare)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """From here on standard output goes nowhere; Python would complain at the end about what is left."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(problem: BaseException) -> str:
    """What Typer found wrong, as one sentence; empty where it has shown the help instead."""
    message = " ".join(problem.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
    context = getattr(problem, "ctx", None)
    if not message or context is None:
        return message
    join = " See" if message.endswith("?") else "; see"
    return f"{message[0].lower()}{message[1:]}{join} {context.command_path} --help."


def _leave(message: str, code: int) -> NoReturn:
    if message:
        from evenhand.utils.text import one_line

        print(f"evenhand: {one_line(message)}", file=sys.stderr, flush=True)
    if "WORLD_SIZE" in os.environ:
        from evenhand.utils.world import World

        World.current().last_word()
    sys.exit(code)
