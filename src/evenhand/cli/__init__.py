"""The command line: one file a command, which parses, calls the library, and prints."""

import sys


def main() -> None:
    """Run `evenhand`; a person's mistake ends with one line and exit code 2, a failed run with 1."""
    from evenhand.cli.app import app
    from evenhand.errors import InputError, RunError

    try:
        app()
    except InputError as problem:
        print(f"evenhand: {problem}", file=sys.stderr)
        sys.exit(2)
    except RunError as problem:
        print(f"evenhand: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("evenhand: stopped.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
