"""Check whether a given case can be run: its faults and limits must fit the mesh of its seed.

Campaigns write such files, and people edit them. A value that does not fit is reported in one line before anything
runs.
"""

from __future__ import annotations

import math

import msgspec

from trellis.errors import InputError
from trellis.live.config import LimitsConfig, LiveOMenConfig
from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.mqtt.config import MqttConfig
from trellis.simulate.mesh.corpus import Case, Limits
from trellis.simulate.mesh.draw import KINDS, MeshPlan
from trellis.simulate.mesh.limits import TABLES
from trellis.simulate.mesh.trial import Trial
from trellis.simulate.schedule import Fault

CONFIGS = {"limits": LimitsConfig, "delivery": DeliveryConfig, "mqtt": MqttConfig, "omen": LiveOMenConfig}
_BETWEEN = ("one-way", "reset", "dark", "slow", "lossy")  # kinds with a second end, which may be any host
_VALUE_MAX = 1e6
_MESH = "name nodes of its mesh, and repeat --nodes-max, --clients and --span of the run that wrote it"


def check_case(case: Case, plan: MeshPlan, where: str) -> Case:
    """Return the case. Raise InputError if its mesh cannot have such faults or limits. `where` is its file."""
    check_limits(case.limits or {}, where)
    if case.faults:
        trial = Trial(case.seed, plan, None, None)
        brokers = [one.name for one in trial.sites.values()]
        for number, fault in enumerate(case.faults, 1):
            _check_fault(fault, f"{where}: fault {number}", trial.names, brokers, [*trial.clients], plan)
    return case


def _check_fault(
    fault: Fault, where: str, nodes: list[str], brokers: list[str], clients: list[str], plan: MeshPlan
) -> None:
    if fault.kind not in KINDS:
        raise InputError(where, f'"{fault.kind}" is no kind of fault', f"choose from {', '.join(KINDS)}")
    end_ms = 1_000 * (plan.form_s + plan.span_s + plan.quiet_s)
    if not 0 <= fault.time_ms <= end_ms or not 0 <= fault.duration_ms <= end_ms:
        told = f"a {fault.kind} at {fault.time_ms} ms for {fault.duration_ms} ms"
        raise InputError(where, told, f"give times from 0 to {end_ms:.0f} ms, or the --span of the run that wrote it")
    least = -_VALUE_MAX if fault.kind == "clock" else 0.0
    most = 1.0 if fault.kind == "lossy" else _VALUE_MAX
    if not math.isfinite(fault.value) or not least <= fault.value <= most:
        raise InputError(where, f"a {fault.kind} of {fault.value:g}", f"give a value from {least:g} to {most:g}")
    everybody = [*nodes, *brokers, *clients]
    of_nodes = brokers if fault.kind.startswith("broker-") else everybody if fault.kind == "partition" else nodes
    of_peers = nodes if fault.kind == "split" else everybody
    for names, known in ((fault.nodes, of_nodes), (fault.peers, of_peers)):
        for name in names:
            if name not in known:
                raise InputError(where, f'a {fault.kind} of "{name}", which the mesh of this seed has not', _MESH)
    if not fault.nodes:
        raise InputError(where, f"a {fault.kind} of no node", _MESH)
    if fault.kind in _BETWEEN and not fault.peers:
        raise InputError(where, f"a {fault.kind} of {fault.nodes[0]} without peers", "name the other end in peers")


def check_limits(limits: Limits, where: str) -> None:
    """Raise InputError if there is no such limit, or if it cannot have this value."""
    for table, given in limits.items():
        if table not in TABLES:
            raise InputError(where, f'limits has no table "{table}"', f"choose from {', '.join(TABLES)}")
        for key in given:
            if key not in TABLES[table]:
                remedy = f"choose from {', '.join(TABLES[table])}"
                raise InputError(where, f'the simulator draws no limit "{table}.{key}"', remedy)
        try:
            msgspec.convert(given, CONFIGS[table])
        except InputError as error:
            told = f"{error.where}: {error.what}" if error.where else error.what
            raise InputError(f"{where}: limits.{table}", told, error.remedy) from None
        except msgspec.ValidationError as error:
            raise InputError(f"{where}: limits.{table}", f"{error}", "give a number") from None
