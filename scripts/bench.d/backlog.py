"""How much of the allowed rate a backlog uses: runs `cargo bench --bench backlog`, whose head explains it."""

import json
from pathlib import Path

import install
import report
from process import Failure, output

ROOT = Path(__file__).resolve().parents[2]
DESCRIPTION = "hosts that always have a waiting request, and how much of the allowed rate they get; nothing pinned"
CARGO = ["cargo", "bench", "--quiet", "--bench", "backlog"]
LIMIT_S = 600
COLUMNS = (
    report.Column("used, %", "used_percent"),
    report.Column("requests/s", "rate", digits=0),
    report.Column("curtsy CPU µs/request", "curtsy_us"),
    report.Column("cores", "curtsy_cores", digits=2),
    report.Column("load CPU µs/request", "load_us"),
    report.Column("cores", "load_cores", digits=2),
    report.Column("others' cores", "other_cores", digits=2),
    report.Column("late ms, p99", "late_p99_ms"),
    report.Column("early ms, worst", "early_ms"),
    report.Column("spacing violations", "spacing_violations", digits=0),
    report.Column("hosts unvisited", "unvisited", digits=0),
)


def rounds(bench, progress):
    """Run each case once."""
    plan = bench.plan
    try:
        install.call([*CARGO, "--no-run"], "cargo bench --bench backlog --no-run", cwd=ROOT)
        progress("backlog")
        options = ["--json", "--curtsy", str(Path(plan.programs["curtsy"]).resolve())]
        options += ["--seconds", str(plan.backlog_seconds)]
        options += [word for key, value in plan.curtsy_settings.items() for word in ("--set", f"{key}={value}")]
        # Nothing is pinned: more threads work than in the other scenarios.
        spread = ["taskset", "--cpu-list", ",".join(map(str, plan.cores.all))]
        lines = output([*spread, *CARGO, "--", *options], LIMIT_S, cwd=ROOT).splitlines()
    except (Failure, OSError) as error:
        return {"backlog": {"rounds": [], "error": str(error)}}
    return {title(case): {"rounds": [case], "error": None} for case in map(json.loads, lines)}


def title(case):
    return f"{case['hosts']:,} hosts, {case['delay_ms']:,} ms"


def section(results):
    rows = [["", *(column.heading for column in COLUMNS)]]
    for name, result in results.items():
        rows.append([name, *(report.middle(result["rounds"], column) for column in COLUMNS)])
    return report.aligned(rows) + report.failures(results)
