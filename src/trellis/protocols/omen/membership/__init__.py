"""The churn of other nodes: suspicion, the events of joins and departures, coordinators and survivors."""
