"""What needle.py and follow.py share: one measurement of each exam (exams.py), all in one file, with a table for each in docs/PAPERS.md.

    SCRIPT [--out DIR]      measures, writes eval/results/NAME.json and the tables
    SCRIPT --only EXAM      one exam; what the others have stays
    SCRIPT --tables         only the tables, from that file
    SCRIPT --check          ends with 1 when the tables say anything else
"""
import argparse
import json
import sys

import exams
import runs
from tables import filled, put

PAGE = runs.ROOT / "docs/PAPERS.md"


def result_of(name):
    return runs.ROOT / f"eval/results/{name}.json"


def measure(args, name, examine):
    """Runs examine(args, exam) for each exam; args.checkpoint is the exam's."""
    path = result_of(name)
    found = json.loads(path.read_text())["checkpoints"] if args.only else {}
    for exam in [args.only] if args.only else exams.EXAMS:
        args.checkpoint = str(runs.ROOT / "checkpoints" / exam)
        report = examine(args, exam)
        found[exam] = dict(runs.stamp(args, [path, PAGE]), **report)
    path.write_text(json.dumps({"checkpoints": {exam: found[exam] for exam in exams.EXAMS if exam in found}}, indent=1) + "\n")


def main(name, about, arguments, examine, table):
    """arguments(parser) adds options to those of runs.py; table(exam, found) yields the lines of one table."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs.add_arguments(parser, f"build/eval/{name}")
    arguments(parser)
    parser.add_argument("--only", choices=list(exams.EXAMS), help="only this exam")
    parser.add_argument("--tables", action="store_true", help="only write the tables again")
    parser.add_argument("--check", action="store_true", help="only compare the tables with the results")
    args = parser.parse_args()
    if not args.check and not args.tables:
        measure(args, name, examine)
    found = json.loads(result_of(name).read_text())["checkpoints"]
    lines = [line for exam, report in found.items() for line in [*table(exam, report), ""]]
    put(PAGE, filled(PAGE, name, f"eval/{name}.py", lines), args.check, f"eval/{name}.py")
    if not args.check:
        print("\n".join(lines), file=sys.stderr)
