"""Generate synthetic interests, publication rates and churn: every generator of the papers.

    configs, presets, options   what can be generated, as frozen configurations; no numpy, so a help page may read them
    generate                    `generate(config, seed)`: the interests; `generate_range` for some of the nodes only
    rates                       `rates(...)`: how often each topic is published on
    churn_configs, churn        `churn(config, interests, seed)`: which nodes join, leave and crash, and when

Random numbers are counter-based: node i draws from a stream of its own, derived from (seed, purpose, i). So it gets the
same topics, whatever else is generated, in any order and on any machine.
"""
