"""Synthetic interests, publication rates and churn: every generator of the papers.

    configs, presets, options   what can be generated, as frozen configurations; no numpy, so a help page may read them
    generate                    `generate(config, seed)`: the interests; `generate_range` for some of the nodes only
    rates                       `rates(...)`: how often each topic is published on
    churn_configs, churn        `churn(config, interests, seed)`: who joins, leaves and crashes, and when

Chance is counter-based: node i draws from a stream of its own, derived from (seed, purpose, i). So it gets the same
topics whatever else is generated, in whatever order, on whatever machine.
"""
