"""One repair: its questions, the answers of other nodes to them, and the links that it has opened."""
