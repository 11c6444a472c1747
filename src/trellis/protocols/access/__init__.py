"""Access control: which clients may read and write which topics, and signed tokens.  [docs/access.md]"""
