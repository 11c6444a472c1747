"""What a row runs: functions (system, parameters, seed, inputs) -> numbers and series, by metric."""
