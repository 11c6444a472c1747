"""All experiments: those of the five papers, and those beyond their sizes. Each figure has a small file."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from trellis.errors import InputError
from trellis.lab.experiment import PAPERS, Experiment

# In the order of the papers; a test holds it against what the files define.
ORDER = tuple(
    f"{paper}-{name}"
    for paper, names in {
        "omen": "tab1 ex2 fig3 fig4 s63 fig5 fig6 fig7 fig8a fig8b fig9a fig9b fig9c s65 fig10a fig10b fig10c fig11 "
        "fig12 s68 claim-2L claim-conc growth",
        "shadows": "fig1 fig2 fig3 fig4 fig5 fig6 fig7 fig8 abs also exponent",
        "spidercast": "s33 fig6a fig6cure fig6b s331 fig7a s34 fig7b fig8a fig8b fig8c fig8d fig8e fig8f fig9a fig9b "
        "fig10 fig11 s381 fig12 fig13a fig13b fig14 abs45 growth million",
        "vitis": "ex1 fig4a fig4b fig5 fig6a fig6b fig7a fig7b fig8 fig9 fig10a fig10b fig10c fig11 fig12a fig12b "
        "fig12c abs claim-bound degree cycles perfect growth million",
        "magnet": "fig1 fig2 fig3a fig3b fig4a fig4b fig5a fig5b fig6 fig7 fig8a fig8b wiki abs claim-worse growth",
    }.items()
    for name in names.split()
)


@cache
def catalogue() -> dict[str, Experiment]:
    found: dict[str, Experiment] = {}
    for paper in PAPERS:
        package = import_module(f"{__name__}.{paper}")
        for module in iter_modules(package.__path__):
            for experiment in getattr(import_module(f"{package.__name__}.{module.name}"), "EXPERIMENTS", ()):
                assert experiment.id not in found, f"{experiment.id} is defined twice"
                found[experiment.id] = experiment
    return {name: found[name] for name in sorted(found, key=_place)}


def chosen(names: list[str]) -> list[Experiment]:
    """By ids, by papers (`omen`), or `all`; each once, in the order of the papers."""
    every = catalogue()
    wanted: set[str] = set()
    for name in names:
        if name == "all":
            wanted |= set(every)
        elif name in PAPERS:
            wanted |= {known for known in every if known.startswith(f"{name}-")}
        elif name in every:
            wanted.add(name)
        else:
            near = [known for known in every if name in known][:5]
            remedy = f"did you mean {', '.join(near)}?" if near else "see: trellis lab list"
            raise InputError(name, "there is no such experiment", remedy)
    return [every[name] for name in every if name in wanted]


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)
