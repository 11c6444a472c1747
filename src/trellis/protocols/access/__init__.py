"""Who may read and write which topics: the rules, the decision, and signed tokens.  [docs/access.md]"""
