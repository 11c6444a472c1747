"""Our links and what keeps them: heartbeats, records at the ring successors, hints, plans and operators' requests."""
