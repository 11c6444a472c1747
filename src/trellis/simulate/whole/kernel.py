"""Define the constants of a Linux kernel that the simulated TCP uses."""

from __future__ import annotations

SECOND = 1_000_000
# shortest and longest time between retransmissions; it doubles each time
RTO_US_MIN, RTO_US_MAX = 200_000, 120 * SECOND
GIVE_UP_US = 924_600_000  # the time of 15 retransmissions: `net.ipv4.tcp_retries2`
SYN_PAUSES_S = (1, 2, 4, 8, 16, 32, 64)  # pauses between attempts to connect; then the kernel gives up
# pauses between answers to a SYN whose connection does not fit into the accept queue
SYN_ACK_PAUSES_S = (1, 2, 4, 8, 16)
HALF_OPEN_US = 63 * SECOND  # A handshake that the client has not completed is forgotten after this time.
ORPHAN_US = 60 * SECOND  # A connection without a process whose other end does not close is forgotten after this time.
FLYING_BYTES = 14_600  # bytes that may be sent without any recent acknowledgement: ten segments

Place = tuple[str, int]  # an address and a port
