"""`trellis`: the program and its commands. A command imports what it needs when it runs."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer

from trellis import __version__
from trellis.cli import (
    acl,
    bridges,
    certs,
    check,
    churn,
    completion,
    convert,
    dashboard,
    demo,
    doctor,
    failures,
    judge,
    lab,
    leave_at_once,
    live,
    maintain,
    pipeline,
    plan,
    profile,
    replan,
    retire,
    simulate,
    store,
    up,
    workload,
)
from trellis.errors import TrellisError

app = typer.Typer(
    name="trellis",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Overlays for publish/subscribe that connect every topic with few links: plan them, prove them, run them.",
    epilog="Start with: trellis demo. Every command has --help with an example.",
)
app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.command("workload", epilog=workload.EXAMPLE)(workload.workload)
app.command("churn", epilog=churn.EXAMPLE)(churn.churn)
app.command("plan", epilog=plan.EXAMPLE)(plan.plan)
app.command("replan", epilog=replan.EXAMPLE)(replan.replan)
app.command("maintain", epilog=maintain.EXAMPLE)(maintain.maintain)
app.command("profile", epilog=profile.EXAMPLE)(profile.profile)
app.command("check", epilog=check.EXAMPLE)(check.check)
app.command("convert", epilog=convert.EXAMPLE)(convert.convert)
app.command("import", epilog=bridges.EXAMPLE)(bridges.import_)
app.command("node", epilog=live.NODE_EXAMPLE)(live.node)
app.command("up", epilog=up.EXAMPLE)(up.up)
app.command("judge", epilog=judge.EXAMPLE)(judge.judge)
app.command("doctor", epilog=doctor.EXAMPLE)(doctor.doctor)
app.command("dashboard", epilog=dashboard.EXAMPLE)(dashboard.dashboard)
app.command("pub", epilog=live.PUB_EXAMPLE)(live.pub)
app.command("sub", epilog=live.SUB_EXAMPLE)(live.sub)
app.command("retire", epilog=retire.EXAMPLE)(retire.retire)
app.command("completion", epilog=completion.EXAMPLE)(completion.completion)
app.add_typer(acl.app, name="acl")
app.add_typer(store.app, name="store")
app.add_typer(certs.app, name="certs")
app.add_typer(simulate.app, name="simulate")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(lab.app, name="lab")


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"trellis {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_tell_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    if signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):  # a terminal may be unable to show a name; it never stops a command
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave_at_once)  # the result is there; the rest is Python putting itself away
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command, and return its exit code.

    0: done; 1: the answer is no; 2: bad input or a limit of the machine, with one line on standard error; 70: a bug in
    Trellis, with one line; 130: interrupted; 143: ended by SIGTERM, by a command that cleans up after itself.
    """
    try:
        return _run(arguments)
    except TrellisError as error:
        return _refuse(str(error))
    except typer.TyperException as error:
        return _refuse(_usage(error, arguments))
    except (KeyboardInterrupt, typer.Abort) as error:
        return _refuse(_with_left("interrupted", error), failures.INTERRUPTED)
    except SystemExit as error:
        if error.code != failures.TERMINATED:
            raise
        return _refuse(_with_left("ended by SIGTERM", error), failures.TERMINATED)
    except BrokenPipeError:
        # The reader of the output has ended (`trellis ... | head`). That is no error, so exit without a message.
        sys.stdout = None
        return 0
    except Exception as error:
        if failures.is_interrupt(error):
            return _refuse("interrupted", failures.INTERRUPTED)
        if failures.is_debugging():
            raise
        if isinstance(error, ModuleNotFoundError) and (text := failures.missing(error, arguments)):
            return _refuse(text)
        if isinstance(error, OSError):
            return _refuse(failures.of_system(error))
        if isinstance(error, MemoryError):
            return _refuse("there is not enough memory; give it a smaller table, or a machine with more")
        return _refuse(failures.bug(error, arguments), failures.BUG)


def _run(arguments: list[str]) -> int:
    program = typer.main.get_command(app)
    if completion.VARIABLE in os.environ:
        completion.answer(program)
    try:
        with program.make_context("trellis", list(arguments)) as context:
            answer = program.invoke(context)
    except typer.Exit as leaving:
        answer = leaving.exit_code
    if sys.stdout is not None:
        sys.stdout.flush()  # what cannot be written is known here, not when Python ends
    return answer if isinstance(answer, int) else 0


def _refuse(line: str, code: int = failures.BAD_INPUT) -> int:
    _tell(" ".join(line.split()))
    return code


def _with_left(what: str, error: BaseException) -> str:
    """Return a line about the end of a command, with what the command has written if it says that (`ending.py`)."""
    left = getattr(error, "left", "")
    return f"{what}; {left}" if left else what


def _tell(line: str) -> None:
    line = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)  # names in it may be of others
    with suppress(OSError):  # standard error may be closed, or on a full disk
        typer.echo(f"trellis: {line}", err=True)


def _usage(error: typer.TyperException, arguments: list[str]) -> str:
    """Return a line about words that are no command, with the value that an option does not take."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "trellis"
    said = error.format_message().rstrip(".")
    option = re.match(r"Invalid value for '(?:-\w / )?(--[\w-]+)", said)
    value = _value_of(option[1], arguments) if option is not None else None
    if value is not None and value not in said:
        said += f', not "{value}"'
    return f"{said}; see: {path} --help"


def _value_of(option: str, arguments: list[str]) -> str | None:
    """Return the last value that was given for an option."""
    value = None
    for word, after in zip(arguments, [*arguments[1:], None], strict=True):
        if word == option:
            value = after
        elif word.startswith(f"{option}="):
            value = word.partition("=")[2]
    return value
