"""Write overlays as GraphML, for Gephi, Cytoscape, yEd and networkx."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.model.overlay import Overlay

_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
    '<graph id="overlay" edgedefault="undirected">\n'
)


def write_graphml(overlay: Overlay, path: str | Path) -> None:
    """Write the nodes by name, including nodes without links. The same overlay gives the same bytes."""
    for name in overlay.nodes:
        if any(ord(letter) < 32 and letter not in "\t\n\r" for letter in name):
            raise InputError(str(path), f"the name {name!r} has a letter that XML cannot hold", "use another format")
    with written_whole(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(_HEAD)
        file.writelines(f"<node id={_attribute(name)}/>\n" for name in overlay.nodes)
        ends = zip(overlay.nodes.take(overlay.u).to_pylist(), overlay.nodes.take(overlay.v).to_pylist(), strict=True)
        file.writelines(f"<edge source={_attribute(u)} target={_attribute(v)}/>\n" for u, v in ends)
        file.write("</graph>\n</graphml>\n")


def _attribute(name: str) -> str:
    # A parser turns white space inside an attribute into blanks, so it is written as references.
    return quoteattr(name, {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"})
