"""The figures of Shadows, and OMen's static ones, beside the papers'.

    python benchmarks/shadows_figures.py
    python benchmarks/shadows_figures.py fig2 fig5 omen-s63 --seeds 1 2 3 4 5 --exponent 2
    python benchmarks/shadows_figures.py all --seeds 1 --json one.jsonl
    python benchmarks/shadows_figures.py all --from one.jsonl two.jsonl

The setting of [SH VI]: 200 topics, 10 to 90 subscriptions by a power law (P(size = k) ~ k^-exponent), one join or
leave a round, lambda = 3, rho = 3, started from LowODA's overlay. The shorter fig2 is shadows-fig2. `--json` writes
the table of results, one row a line; `--from` reads tables written before and runs nothing. The conditions of the
papers' rules are printed with what was found; verdicts are given by `trellis lab` alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from figures import costs, dynamics, static
from figures.runs import Lab, warm_up
from figures.table import Figure, Table, show
from trellis.errors import InputError

FIGURES: dict[str, Figure] = {**static.FIGURES, **dynamics.FIGURES, **costs.FIGURES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", default=["all"], help=f"all, or some of {', '.join(FIGURES)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--exponent", type=float, default=3.0, help="of the subscription sizes (E-1)")
    parser.add_argument("--json", type=Path, help="write the table of results here")
    parser.add_argument("--from", type=Path, nargs="+", dest="tables", help="read these tables instead of running")
    options = parser.parse_args()
    names = chosen(parser, options.figures)
    table, lab = Table(), Lab(options.nodes, options.rounds, tuple(options.seeds), options.exponent)
    if options.tables:
        try:
            for path in options.tables:
                table.read(path)
        except (InputError, OSError) as error:
            parser.error(str(error))
        names = [name for name in names if table.seeds(name)]
    else:
        print(f"{lab.nodes:,} nodes, 200 topics, sizes 10:90 ~ k^-{lab.exponent:g}, {lab.rounds} rounds", flush=True)
        warm_up()
    for name in names:
        figure = FIGURES[name]
        if not options.tables:
            figure.measure(lab, table)
        print(show(name, figure, table), flush=True)
        if options.json:
            table.write(options.json)  # after each figure, so that a run that is stopped leaves what it has


def chosen(parser: argparse.ArgumentParser, asked: list[str]) -> list[str]:
    if "all" in asked:
        return sorted(FIGURES, key=lambda name: (not name.startswith("shadows"), name))
    names = [name if name in FIGURES else f"shadows-{name}" for name in asked]
    unknown = [name for name, full in zip(asked, names, strict=True) if full not in FIGURES]
    if unknown:
        parser.error(f'there is no figure "{unknown[0]}"; choose from all, {", ".join(FIGURES)}')
    return names


if __name__ == "__main__":
    main()
