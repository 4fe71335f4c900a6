"""The chaosproxy command: options in, a call to one room out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from proxy import console, terminal
from proxy.failures import friendly

app = typer.Typer(
    name="chaosproxy",
    help=(
        "A chaos monkey for coding agents: a proxy between an agent harness and its model endpoint that"
        " makes tool calls fail on a seeded schedule, proves that each fault arrived, and scores what the"
        " agent did."
        "\n\nWithout a command it serves: point a harness's base URL at it (the lines to export are printed),"
        " let the agent work, end with ctrl-C, and score the log."
    ),
    epilog="Exit codes: 0 fine, 1 a check failed, 2 bad usage, config or input, 3 inconclusive.",
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Seed = Annotated[
    int, typer.Option(min=0, max=2**64 - 1, help="Seed of the schedule: same seed, same faults.")
]
ProfileName = Annotated[
    str, typer.Option(help="A shipped profile (see `chaosproxy profiles`) or the path of a YAML file.")
]


TestedOnly = Annotated[
    bool,
    typer.Option("--tested-only", help="Refuse a harness version that has no capability file (exit 2)."),
]
Capabilities = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|HARNESS@VERSION",
        help="Never draw what this harness version cannot be done either, so that two harnesses get the"
        " same; may be given more than once.",
    ),
]


def _exit(code: int) -> NoReturn:
    raise typer.Exit(code)


def _show_version(value: bool) -> None:
    if value:
        from ledger.identity import package_version

        typer.echo(f"chaosproxy {package_version()}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
@friendly
def serve(
    context: typer.Context,
    seed: Seed = 0,
    profile: ProfileName = "moderate",
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but loopback needs --token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8017,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Model endpoint for everything, or for one provider: anthropic=URL, openai=URL, gemini=URL."
            " Without it requests go to the provider that their headers or path name.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="The decision log; default runs/<time>-<profile>-<seed>/decisions.jsonl."),
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(help="The directory that the agent works in, when its harness does not say."),
    ] = None,
    on_error: Annotated[
        console.OnError,
        typer.Option(help="When the injector fails on a request: forward it unchanged, or block it."),
    ] = console.OnError.forward,
    log_payloads: Annotated[
        bool, typer.Option("--log-payloads", help="Write the texts of replaced results into the log, too.")
    ] = False,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="CHAOSPROXY_TOKEN", help="Secret that must open every path: http://HOST:PORT/<token>/…"
        ),
    ] = None,
    control_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the control API on the loopback, which says what the path cannot: a run's task,"
            " seed, profile, budget and verdict. 0 takes a free one.",
        ),
    ] = None,
    tested_only: TestedOnly = False,
    capabilities: Capabilities = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is not None:
        return
    del version
    from proxy.serving import ServeOptions, serve_until_stopped

    code = serve_until_stopped(
        ServeOptions(
            seed=seed,
            profile=profile,
            host=host,
            port=port,
            upstreams=tuple(upstream or ()),
            log=log,
            workspace=workspace,
            block_on_error=on_error is console.OnError.block,
            log_payloads=log_payloads,
            token=token,
            control_port=control_port,
            tested_only=tested_only,
            capabilities=tuple(capabilities or ()),
        )
    )
    _exit(code)


@app.command(context_settings={"allow_interspersed_args": True})
@friendly
def run(
    manifest: Annotated[
        Path, typer.Option("--manifest", "-m", help="What is to be run: see docs/supervised-runs.md.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder; the same one goes on.")],
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN",
            help="off, or CHECKPOINT:hard_exit[,…]: where first attempts are killed. Else the variable"
            " CHAOSPROXY_FAULTS, else the manifest says.",
        ),
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=1, help="Runs per task and seed; else the manifest says.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many runs at a time.")] = 1,
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="The model endpoint; else the manifest says.")
    ] = None,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls", help="Run both controls first: without faults, and killed before any work."
        ),
    ] = False,
    tested_only: TestedOnly = False,
    capabilities: Capabilities = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="CMD…", help="Any command in the place of the manifest's harness."),
    ] = None,
) -> None:
    """Supervised runs: every task, seed and repeat of a manifest in a workspace of its own, killed or cut as
    planned, judged by the task's own check, written down the moment each one stops.

    Run it again with the same folder to go on where it was stopped.
    """
    from harness.preparing import RunOptions
    from harness.running import run_command

    options = RunOptions(
        out, faults, repeat, jobs, upstream, tuple(command or ()), tested_only, tuple(capabilities or ())
    )
    _exit(run_command(manifest, options, terminal.Progress(), controls=controls))


@app.command()
@friendly
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")],
    jobs: Annotated[int, typer.Option(min=1, help="How many runs at a time.")] = 1,
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="The model endpoint, when it has moved.")
    ] = None,
) -> None:
    """A resume pass: every run that was cut goes on from its last durable checkpoint with the harness's own
    resume command, in the same workspace, under the same seed and what is left of its budget.

    What cannot be resumed honestly gets a line that says why, and exit code 1.
    """
    from harness.running import resume_command

    _exit(resume_command(folder, terminal.Progress(), jobs=jobs, upstream=upstream))


@app.command()
@friendly
def score(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…", help="A run folder, a decisions.jsonl, a runlog.jsonl or a journal.db."
        ),
    ],
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Truncation or error rate above which the headline is strict."),
    ] = None,
    verdicts: Annotated[
        Path | None, typer.Option(help='JSON of {"run_id": true | false}: which served runs passed.')
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, to the last digit.")] = False,
) -> None:
    """Strict, observed and truncation figures of finished runs, with intervals. Of a run folder they are
    kept in its score.json, too.

    The last two lines of the text are made to be pasted.
    """
    from ledger.controls import control_folders
    from scoring.score import save_score, score_home, score_json, score_paths
    from scoring.text import score_text

    result = score_paths(
        paths,
        threshold=threshold,
        verdicts=verdicts,
        positive=control_folders(paths, "positive"),
        negative=control_folders(paths, "negative"),
    )
    home = score_home(paths)
    if home is not None:
        try:
            save_score(result, home)
        except OSError as error:
            # A folder that may only be read can be scored all the same.
            terminal.tell(f"{home / 'score.json'} was not written: {error.strerror}")
    terminal.write(score_json(result).decode() if json else score_text(result))
    _exit(result.exit_code)


@app.command()
@friendly
def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Run folders or ledgers, as for score.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the page is written.")] = Path(
        "report.html"
    ),
    threshold: Annotated[float | None, typer.Option(min=0, max=1, help="As for score.")] = None,
    verdicts: Annotated[Path | None, typer.Option(help="As for score.")] = None,
) -> None:
    """One self-contained HTML page about finished runs."""
    from ledger.controls import control_folders
    from scoring.report import write_report
    from scoring.score import score_paths

    result = score_paths(
        paths,
        threshold=threshold,
        verdicts=verdicts,
        positive=control_folders(paths, "positive"),
        negative=control_folders(paths, "negative"),
    )
    write_report(result, output)
    terminal.write(f"wrote {output}")
    _exit(result.exit_code)


@app.command()
@friendly
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run folder.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another, under the same tasks and seeds.")],
    threshold: Annotated[float | None, typer.Option(min=0, max=1, help="As for score.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, to the last digit.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a page, too.")] = None,
) -> None:
    """Two run folders, task by task under the same seeds: the difference, its interval, and what this design
    could have shown. Refused where their conditions differ.
    """
    from scoring.compare import compare_json, compare_paths
    from scoring.compare_text import compare_text
    from scoring.report import write_comparison

    result = compare_paths(a, b, threshold=threshold)
    if output is not None:
        write_comparison(result, output)
    terminal.write(compare_json(result).decode() if json else compare_text(result))
    _exit(result.exit_code)


@app.command()
@friendly
def plan(
    profile: ProfileName = "moderate",
    calls: Annotated[int, typer.Option(min=1, help="Tool calls that a run makes, about.")] = 30,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks.")] = 10,
    repeat: Annotated[int, typer.Option(min=1, help="Runs per task: seeds times repeats.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, to the last digit.")] = False,
) -> None:
    """What a design would expose, and the smallest difference that it can show, before money is spent."""
    from configs import load_profile
    from scoring import plan as planning
    from scoring.plan_text import plan_json, plan_text

    found = planning.plan(load_profile(profile), calls=calls, tasks=tasks, repeats=repeat)
    terminal.write(plan_json(found).decode() if json else plan_text(found))


@app.command()
@friendly
def forget(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder that has been scored.")],
) -> None:
    """Delete what was kept for replay: the texts of calls and results in memory.db. Runs of this folder can
    then not be gone on with.
    """
    from ledger.memory import forget_memory
    from proxy.usage import UsageError

    if not folder.exists():
        raise UsageError(f"{folder} does not exist: give a run folder")
    gone = forget_memory(folder)
    terminal.write("\n".join(f"deleted {path}" for path in gone) or f"{folder} has no memory to delete")


@app.command()
@friendly
def explain(
    seed: Seed = 0,
    profile: ProfileName = "moderate",
    capabilities: Capabilities = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What the schedule says of one call, read as JSON from standard input.

    Only tool and arguments are needed:

    echo '{"tool": "Read", "arguments": {"file_path": "a.txt"}}' | chaosproxy explain --seed 7

    More fields: harness (claude-code, or claude-code@2.1.289 without the gaps of that version), task_id,
    role, occurrence, k, and result to see what the model would be sent.
    """
    from proxy.explaining import explain_text

    terminal.write(
        explain_text(seed, profile, sys.stdin.buffer.read(), tuple(capabilities or ()), as_json=json)
    )


@app.command()
@friendly
def verify(
    log: Annotated[Path, typer.Argument(metavar="DECISIONS", help="A decisions.jsonl, or its folder.")],
) -> None:
    """Recompute every decision from the log alone; any difference is an error (exit 1)."""
    from scoring.verify import verify_log

    result = verify_log(log / "decisions.jsonl" if log.is_dir() else log)
    console.show_verification(result)
    _exit(0 if result.ok and result.decisions else (1 if not result.ok else 3))


@app.command()
@friendly
def doctor(
    harness: Annotated[str | None, typer.Argument(help="Look at this harness only.")] = None,
    profile: ProfileName = "moderate",
    upstream: Annotated[list[str] | None, typer.Option(metavar="URL", help="As when serving.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="As when serving.")] = 8017,
) -> None:
    """Is the set-up able to inject? Names what is missing and what to do about it (exit 1)."""
    from harness.doctor import examine

    findings = examine(harness, profile, tuple(upstream or ()), port)
    console.show_findings(findings)
    _exit(1 if any(finding.failed for finding in findings) else 0)


@app.command()
@friendly
def profiles() -> None:
    """The shipped profiles, and which fault kind fits which tool family.

    Serve with one by its name, `chaosproxy --profile severe`, or with a YAML file of your own by its path:
    rate, rates and kind weights per family, limits and forced faults are described in docs/profiles.md.
    """
    console.show_profiles()


@app.command()
@friendly
def harnesses() -> None:
    """The harnesses that are known, and which of them are installed.

    Any other harness that speaks a known protocol can be used as well: its faults are then worded in a
    generic way, which is said at its first request. `chaosproxy doctor HARNESS` looks at one closely.
    """
    console.show_harnesses()


@app.command()
@friendly
def conformance(
    harness: Annotated[str, typer.Argument(help="An installed harness, such as claude-code.")],
    kinds: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND[,KIND…]", help="These fault kinds only (see `chaosproxy profiles`)."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, max=20, help="Independent starts that must all agree.")] = 3,
    out: Annotated[
        Path | None, typer.Option(help="Where the capability file goes; default conformance-out.")
    ] = None,
    keep_evidence: Annotated[
        bool, typer.Option("--keep-evidence", help="Keep what was seen of each cell beside the file.")
    ] = False,
) -> None:
    """Does each fault reach the model? Tries every fault kind on every tool of a harness, offline.

    A scripted model is the witness: it keeps what it was sent. A table lists every cell, and a capability
    file says the same to the schedule. Exit code 1: a cell fails that is no declared gap.
    """
    from harness.conformance import run_conformance

    wanted = [kind for group in kinds or () for kind in group.split(",") if kind]
    result = run_conformance(harness, wanted, repeat, out, terminal.Progress(), keep_evidence=keep_evidence)
    terminal.write(f"wrote {result.capability}\n\n{result.table}")
    _exit(result.exit_code)


@app.command()
@friendly
def demo(
    out: Annotated[
        Path | None, typer.Option(help="Where the run folder goes; default demo-out/<time>.")
    ] = None,
    harness: Annotated[
        str,
        typer.Option(help="reference (comes with chaosproxy), or an installed harness such as claude-code."),
    ] = "reference",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Seeds per task.")] = 3,
) -> None:
    """The whole job offline and without a key: small repair tasks, real faults, a score and a report."""
    from harness.demo_run import run_demo

    _exit(run_demo(out, harness, seeds, terminal.Progress()))


def main() -> None:
    """The entry point."""
    app()
