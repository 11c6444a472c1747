"""Magnet's figures."""
