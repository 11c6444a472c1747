"""The numbers of a Linux kernel that the simulated TCP keeps to."""

from __future__ import annotations

SECOND = 1_000_000
RTO_US_MIN, RTO_US_MAX = 200_000, 120 * SECOND  # between retransmissions; doubled each time
GIVE_UP_US = 924_600_000  # 15 retransmissions: `net.ipv4.tcp_retries2`
SYN_PAUSES_S = (1, 2, 4, 8, 16, 32, 64)  # between attempts to connect; then the kernel gives up
SYN_ACK_PAUSES_S = (1, 2, 4, 8, 16)  # between answers to a SYN whose connection finds no room
HALF_OPEN_US = 63 * SECOND  # a handshake that the client has not completed is forgotten after so long
ORPHAN_US = 60 * SECOND  # so is a connection without a process whose other end does not close
FLYING_BYTES = 14_600  # sent although nothing was acknowledged lately: ten segments

Place = tuple[str, int]  # an address and a port
