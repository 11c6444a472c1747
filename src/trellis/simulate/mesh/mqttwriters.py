"""Run MQTT clients that publish, with clean and with kept sessions.

A client that returns to a kept session repeats publications without an outcome, marked DUP. Some programs keep no state
and count identifiers from 1 again. Some leave wills.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from trellis.simulate.mesh.mqtt import MqttFailed
from trellis.simulate.mesh.mqttists import Session, drawn_session
from trellis.simulate.mesh.natives import Habits
from trellis.simulate.mesh.sites import Place
from trellis.simulate.mesh.witness import Witness

_RETURNS_SHARE = 0.7  # share of kept sessions to which the client returns after it has lost its connection


async def mqtt_publisher(
    slot: str,
    witness: Witness,
    habits: Habits,
    choose: Callable[[], str],
    place_at: Callable[[str], Place],
    rate: float,
    size: int,
) -> None:
    """Publish for a while, sometimes several messages at a time, and end. Repeat this with new sessions."""
    random = habits.random
    while habits.has_time():
        await habits.is_away()
        session = drawn_session(slot, witness, habits)
        session.has_wills = random.random() < 0.3
        (address, _), window = habits.goal(lambda: None), random.choice((1, 1, 4, 20))
        place = place_at(address)
        try:
            async with asyncio.timeout(habits.stays_s()):
                await session.connect(address, place)
                if session.is_kept and random.random() < 0.7:
                    forgets = session.site is None and random.random() < 0.5
                    await _return_often(session, habits, address, place, choose, rate, size, forgets=forgets)
                while await _is_lost(_publish_on(session, habits, choose, window, rate, size)):
                    if not session.is_kept or random.random() >= _RETURNS_SHARE:
                        raise MqttFailed("the connection is lost")
                    await _return(session, habits, address, place)
        except MqttFailed as error:
            witness.troubles[f"mqtt publisher: {error}"] += 1
        except TimeoutError:
            pass
        finally:
            if session.connection is not None and session.connection.is_ended:
                session.lose()
            session.finish()


async def _return_often(
    session: Session,
    habits: Habits,
    address: str,
    place: Place,
    choose: Callable[[], str],
    rate: float,
    size: int,
    *,
    forgets: bool,
) -> None:
    """Lose the connection again and again while publications are under way.

    `forgets`: the program keeps no state when it restarts. Its session stays, and it counts identifiers from 1 again.
    """
    random = habits.random
    for _ in range(random.choice((1, 3))):
        with suppress(TimeoutError):
            async with asyncio.timeout(random.choice((0.3, 1.0, 3.0))):
                await _is_lost(_publish_on(session, habits, choose, 20, 5 * rate, size))
        if forgets:
            session.lose()
            session.forget_numbers()
            await session.connect(address, place)
        else:
            await _return(session, habits, address, place)


async def _return(session: Session, habits: Habits, address: str, place: Place) -> None:
    """Connect again after a while, and repeat publications without an outcome, unless the node has lost the session."""
    session.lose()
    await asyncio.sleep(habits.random.choice((0.0, 0.2, 3.0)))
    if await session.connect(address, place):
        await session.repeat()


async def _is_lost(work: Coroutine[Any, Any, None]) -> bool:
    """Do the work. Return whether the connection was lost during it."""
    is_lost = False
    try:
        await work
    except* MqttFailed:
        is_lost = True
    return is_lost


async def _publish_on(
    session: Session, habits: Habits, choose: Callable[[], str], window: int, rate: float, size: int
) -> None:
    random, free = habits.random, asyncio.Semaphore(window)
    async with asyncio.TaskGroup() as group:
        while habits.has_time():
            await free.acquire()
            qos, retain = random.choice((0, 1, 1, 1, 1, 2)), random.random() < 0.05
            task = group.create_task(session.say(choose(), size, qos=qos, retain=retain))
            task.add_done_callback(lambda _: free.release())
            await asyncio.sleep(random.expovariate(rate))
